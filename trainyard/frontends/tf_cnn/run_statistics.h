// Makes the results of a run (RunStatistics) from its steps and its evaluation.
#pragma once

#include <cstdint>

#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"

namespace trainyard::train {
struct Evaluation;
}

namespace trainyard::frontends {

class StepLog;

// Returns the counts and speeds of the steps of `steps`, for `num_workers` synchronous workers.
RunStatistics statistics_of(const StepLog& steps, int64_t num_workers);
// Sets the accuracies that `evaluation` has, or a detector's average precision.
void set_accuracies(const train::Evaluation& evaluation, RunStatistics& statistics);

}  // namespace trainyard::frontends
