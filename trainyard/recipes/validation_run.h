// One evaluation of the benchmark door: the batches that the plan asks for, with upstream's lines while it runs.
#pragma once

#include <memory>

#include "trainyard/data/batch_source.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/train/evaluator.h"
#include "trainyard/train/step_log.h"

namespace trainyard::recipes {

class ValidationRun {
 public:
  // `parameters` outlives it.
  ValidationRun(const BenchmarkSettings& settings, nn::ParameterSet& parameters, int64_t display_every,
                train::Print print);

  // From the first sample on: every one once with eval_exact, else num_eval_batches that wrap around the data.
  train::Evaluation run();

 private:
  int64_t batches_;
  int64_t display_every_;
  train::Print print_;
  std::shared_ptr<data::BatchSource> source_;
  train::Evaluator evaluator_;
};

}  // namespace trainyard::recipes
