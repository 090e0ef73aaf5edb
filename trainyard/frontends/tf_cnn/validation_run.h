// One evaluation: the batches that the plan asks for, with the lines of tf_cnn_benchmarks while it runs.
#pragma once

#include <functional>
#include <memory>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::frontends {

class ValidationRun {
 public:
  // `parameters` outlives it.
  // `progress` is told of batches done and batches in all, at the beginning and at each line.
  ValidationRun(const PreparedRun& run, nn::ParameterSet& parameters, int64_t display_every, Print print,
                std::function<void(int64_t done, int64_t all)> progress, const core::StopToken& stop);

  // From the first sample on: every one once with eval_exact, else num_eval_batches that wrap around the data. Throws
  // kCancelled when `stop` is asked for meanwhile. Collective where several processes work together: each evaluates its
  // share of every batch, all get the same result, and a stop of one of them stops all.
  train::Evaluation run();

 private:
  // Returns what the next `batches` come to, over all processes.
  train::Evaluation run_part(int64_t batches);
  // Lets a model of the caller's own see and change what an evaluation found.
  void postprocess(train::Evaluation& evaluation) const;

  int64_t batches_;
  int64_t display_every_;
  bool shows_top_5_;
  std::shared_ptr<parallel::ProcessGroup> ranks_;  // null: this process works alone
  bool shares_;                                    // each rank has its part of a batch
  Print print_;
  std::function<void(int64_t, int64_t)> progress_;
  std::shared_ptr<BenchmarkModel> own_model_;   // null: there is none
  std::unique_ptr<ResultCollector> collector_;  // of own_model_
  std::shared_ptr<data::BatchSource> source_;
  train::Evaluator evaluator_;
};

}  // namespace trainyard::frontends
