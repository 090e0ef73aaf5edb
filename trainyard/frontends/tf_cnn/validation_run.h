// One evaluation: the batches of the plan, with the lines of tf_cnn_benchmarks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/tf_cnn/evaluation_measure.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::frontends {

class ValidationRun {
 public:
  // `parameters` must outlive it. `progress` is called with the batches done and all batches, at the beginning and at
  // each line.
  ValidationRun(const PreparedRun& run, nn::ParameterSet& parameters, int64_t display_every, Print print,
                std::function<void(int64_t done, int64_t all)> progress, const core::StopToken& stop);

  // Evaluates from the first sample on: every sample once with eval_exact, else num_eval_batches batches that wrap
  // around the data. Throws kCancelled when `stop` is requested meanwhile. Collective with several processes: each
  // evaluates its share of every batch, all get the same result, and a stop of one of them stops all.
  train::Evaluation run();
  // Returns what the last complete evaluation of run() predicted, over all processes; null before it, and when the run
  // does not explain evaluations.
  const train::PredictionCounts* predictions() const { return measure_->predictions(); }
  // As EvaluationMeasure::take_late_numbers().
  std::vector<LateNumbers> take_late_numbers(bool wait) { return measure_->take_late_numbers(wait); }

 private:
  // Returns the evaluation of the next `batches`, over all processes.
  train::Evaluation run_part(int64_t batches);

  int64_t batches_;
  int64_t display_every_;
  bool shows_top_5_;
  std::shared_ptr<parallel::ProcessGroup> ranks_;  // null: this process works alone
  bool shares_;                                    // each rank has its part of a batch
  Print print_;
  std::function<void(int64_t, int64_t)> progress_;
  std::unique_ptr<EvaluationMeasure> measure_;
  std::shared_ptr<data::BatchSource> source_;
  train::Evaluator evaluator_;
};

}  // namespace trainyard::frontends
