// The flags of the learning rate: which go together, and what they ask for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/schedules/learning_rate_options.h"

namespace trainyard::frontends {

// The first part of tf_cnn_benchmarks' checks: flags of the decay that must come together. Throws kInvalidArgument with
// its texts.
void check_learning_rate_decay(const core::FlagValues& values);

// All others, and ours. Returns the piecewise schedule, where one is given. Throws kInvalidArgument for flags that
// contradict each other, by their names.
std::optional<optim::PiecewiseEpochs> check_schedule_flags(const core::FlagValues& values);

// Reads flags that were checked.
LearningRateOptions read_learning_rate(const core::FlagValues& values);

// Returns what is to be said of flags that tf_cnn_benchmarks accepts and has no use for.
std::vector<std::string> learning_rate_warnings(const core::FlagValues& values);

}  // namespace trainyard::frontends
