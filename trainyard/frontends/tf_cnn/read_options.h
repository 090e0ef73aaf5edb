// Reads the flags of this front end into options.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends {

// Returns the options of the flags of tf_cnn_flags(dialect). Validates everything that follows from the flags alone, in
// the order of tf_cnn_benchmarks; opens no file or directory. Throws kInvalidArgument with the texts of
// tf_cnn_benchmarks.
TfCnnOptions read_options(const core::FlagValues& values, Dialect dialect);

// Reads the flags that say how many steps a run has. Throws kInvalidArgument when a list contains anything but numbers.
train::StepPlanOptions read_step_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
