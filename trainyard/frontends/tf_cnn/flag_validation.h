// Combinations of flags that make no sense, refused in the order and with the texts of tf_cnn_benchmarks.
//
// What needs the data set, the model or the machine is checked where those are known. Call validate_flags
// before core::check_dispositions: a mistake is reported as the mistake it is, even where a flag is not built yet.
#pragma once

#include <optional>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/dialect.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

// Flags whose texts are read to be checked.
struct CheckedFlags {
  train::StepPlanOptions steps;
  std::optional<optim::PiecewiseEpochs> piecewise;
};

// Throws kInvalidArgument for the first condition that holds.
CheckedFlags validate_flags(const core::FlagValues& values, Dialect dialect = Dialect::kTfCnnBenchmarks);

}  // namespace trainyard::frontends
