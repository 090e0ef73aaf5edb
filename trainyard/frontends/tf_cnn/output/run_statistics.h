// The results of a run, with the names of tf_cnn_benchmarks' BenchmarkCNN.run().
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/core/base/export.h"

namespace trainyard::frontends {
class StepLog;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {
struct Evaluation;
}

namespace trainyard::frontends {

struct RunStatistics {
  int64_t num_workers = 1;  // processes that trained together
  // Steps after the warm-up, of all workers; 0 when nothing was left to do, and in an evaluation.
  int64_t num_steps = 0;
  double average_wall_time = 0;  // seconds per step of one worker; 0 without steps
  double images_per_sec = 0;     // of all workers; of the last evaluation if the run only evaluates
  // As in the last step line, by loss_type_to_report. Unset when nothing was trained.
  std::optional<double> last_average_loss{};
  // Fractions of the images of the last evaluation, in [0, 1]. Both are unset when nothing was evaluated, and top_5
  // also when the console does not show it.
  std::optional<double> top_1_accuracy{}, top_5_accuracy{};
  bool stopped_by_signal = false;  // the run ended early because of SIGINT or SIGTERM
};

// Returns the counts and speeds of the steps of `steps`, for `num_workers` synchronous workers.
[[nodiscard]] RunStatistics statistics_of(const StepLog& steps, int64_t num_workers);
// Returns the top-1 accuracy, or nothing when the evaluation has none.
[[nodiscard]] std::optional<double> top_1_of(const train::Evaluation& evaluation);
// Sets the accuracies that `evaluation` has.
void set_accuracies(const train::Evaluation& evaluation, RunStatistics& statistics);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
