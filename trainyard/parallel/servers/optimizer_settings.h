// The settings of optimizers that processes must have alike. Servers hear the learning rate and the hyperparameters
// with each step; all else is what the flags of each process say, and is compared once.
#pragma once

#include <string>

#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::parallel {

// Returns the settings of an optimizer but for its hyperparameters, a line each, with its name first.
std::string optimizer_settings(const optim::Optimizer& optimizer);

// Returns the same with the hyperparameters as they are now, the weight decay among them. For processes that update
// copies of their own, which would drift apart.
std::string all_optimizer_settings(const optim::Optimizer& optimizer);

// Throws kInvalidArgument with the first setting that differs unless both are the same. `where` and `problem` are for
// the message.
void require_same_settings(const std::string& expected, const std::string& actual, const std::string& where,
                           const std::string& problem = "a worker and a parameter server have different optimizers");

}  // namespace trainyard::parallel
