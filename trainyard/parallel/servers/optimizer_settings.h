// The settings of optimizers that servers and workers must have alike. A step carries the learning rate and the
// hyperparameters; all else is what the flags of each process say, and is compared once.
#pragma once

#include <string>

#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::parallel {

// Returns the settings of an optimizer but for its hyperparameters, a line each, with its name first.
std::string optimizer_settings(const optim::Optimizer& optimizer);

// Throws kInvalidArgument with the first setting that differs unless both are the same. `where` is for the message.
void require_same_settings(const std::string& servers, const std::string& workers, const std::string& where);

}  // namespace trainyard::parallel
