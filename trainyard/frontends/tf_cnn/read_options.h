// From flags to options: the one place where this door reads its flags.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends {

// Returns what the flags of tf_cnn_flags(dialect) ask for. Validates everything that can be known from the flags alone,
// in the order of tf_cnn_benchmarks; opens nothing, and looks into no directory. Throws kInvalidArgument with the texts
// of tf_cnn_benchmarks, kUnsupported for what is not built.
TfCnnOptions read_options(const core::FlagValues& values, Dialect dialect);

// Reads the flags that say how many steps a run has. Throws kInvalidArgument when a list holds something else than
// numbers.
train::StepPlanOptions read_step_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
