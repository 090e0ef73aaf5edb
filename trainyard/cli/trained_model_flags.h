// Selects the trained model of a command: predict, export, quantize.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/model/trained_model.h"

namespace trainyard::cli {

void declare_trained_model_flags(core::FlagTable& table);

// Throws kInvalidArgument unless exactly one of --weights, --train_dir and `path` is given. `path`, which a command
// takes without a flag, is as --weights; empty: not given. The precision is unset.
frontends::TrainedModelOptions read_trained_model_options(const core::FlagValues& values, const std::string& path = "");

}  // namespace trainyard::cli
