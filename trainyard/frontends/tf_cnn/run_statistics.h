// Makes the results of a run (RunStatistics) from its steps and its evaluation.
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"

namespace trainyard::train {
struct Evaluation;
}

namespace trainyard::frontends {

class StepLog;

// Returns the counts and speeds of the steps of `steps`, for `num_workers` synchronous workers.
RunStatistics statistics_of(const StepLog& steps, int64_t num_workers);
// Returns the top-1 accuracy, or nothing when the evaluation has none.
std::optional<double> top_1_of(const train::Evaluation& evaluation);
// Sets the accuracies that `evaluation` has.
void set_accuracies(const train::Evaluation& evaluation, RunStatistics& statistics);

}  // namespace trainyard::frontends
