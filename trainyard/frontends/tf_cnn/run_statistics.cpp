#include "trainyard/frontends/tf_cnn/run_statistics.h"

#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::frontends {

RunStatistics statistics_of(const StepLog& steps, int64_t num_workers) {
  RunStatistics statistics{.num_workers = num_workers,
                           .num_steps = steps.steps() * num_workers,
                           .images_per_sec = steps.images_per_second()};
  if (steps.steps() > 0) {
    statistics.average_wall_time = steps.elapsed_seconds() / static_cast<double>(steps.steps());
  }
  return statistics;
}

void set_accuracies(const train::Evaluation& evaluation, RunStatistics& statistics) {
  statistics.average_precision = train::value_of(evaluation, kCocoAp);
  if (!evaluation.has_accuracies) return;
  statistics.top_1_accuracy = evaluation.top_1;
  if (evaluation.shows_top_5) statistics.top_5_accuracy = evaluation.top_5;
}

}  // namespace trainyard::frontends
