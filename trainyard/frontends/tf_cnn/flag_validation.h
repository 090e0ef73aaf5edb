// Rejects invalid combinations of flags, in the order and with the texts of tf_cnn_benchmarks.
//
// Checks that need the data set, the model or the machine are made elsewhere.
#pragma once

#include <optional>
#include <string_view>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/dialect.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

// What the refusal of --trackers says where a run records nothing: by the flags, or by options filled by hand.
inline constexpr const char* kNothingToTrack = "--trackers has no numbers to write: the run records none";

// Flags whose texts are parsed by the checks.
struct CheckedFlags {
  train::StepPlanOptions steps;
  std::optional<optim::PiecewiseEpochs> piecewise;
};

// Throws kInvalidArgument for the first invalid combination.
CheckedFlags validate_flags(const core::FlagValues& values, Dialect dialect = Dialect::kTfCnnBenchmarks);

// Returns whether a flag says something of a training alone. An evaluation refuses it on its command line, and leaves
// it out of a file of flags, which serves the training, too.
[[nodiscard]] bool is_training_flag(std::string_view name);

// Throws kInvalidArgument for flags of frontends::declare_all_reduce_flags that another one leaves without use.
// tf_cnn_benchmarks says nothing of them.
void check_idle_all_reduce_flags(const core::FlagValues& values);

}  // namespace trainyard::frontends
