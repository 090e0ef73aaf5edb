// Selects the trained model of a command: predict, export.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/model/trained_model.h"

namespace trainyard::cli {

void declare_trained_model_flags(core::FlagTable& table);

// Throws kInvalidArgument unless exactly one of --weights and --train_dir is given.
frontends::TrainedModelOptions read_trained_model_options(const core::FlagValues& values);

}  // namespace trainyard::cli
