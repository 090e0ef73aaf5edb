#include "trainyard/train/session/rank_evaluation.h"

#include "trainyard/core/base/error.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/train/evaluation/evaluation_sum.h"
#include "trainyard/train/evaluation/shared_statistics.h"

namespace trainyard::train {

void RankEvaluations::begin(parallel::ProcessGroup* ranks, const data::BatchSource* source, int64_t global_step,
                            nn::ParameterSet& parameters) {
  if (ranks == nullptr) return;
  ranks->progress("evaluation", evaluated_.insert(source).second ? -1 : global_step);
  take_statistics_of_first(*ranks, parameters);
}

Evaluation evaluate_over_ranks(parallel::ProcessGroup* ranks, const std::function<Evaluation()>& own, bool shared) {
  if (ranks == nullptr) return own();
  Evaluation part;
  bool stopped = false;
  try {
    part = own();
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kCancelled) throw;
    stopped = true;
  }
  // Also where each rank has evaluated all: a stop of one ends the evaluation of all.
  Evaluation all = sum_over_ranks(*ranks, shared ? part : Evaluation(), stopped);
  return shared ? all : part;
}

bool shares_batches(parallel::ProcessGroup* ranks, const data::BatchSource& source) {
  return ranks != nullptr && data::batches_in_epoch(source) > 0;
}

Evaluation evaluate_own_batches(const parallel::ProcessGroup& ranks, Evaluator& evaluator, data::BatchSource& source) {
  const int64_t batches = data::batches_in_epoch(source);  // full ones
  const int64_t first = batches * ranks.rank() / ranks.size(), end = batches * (ranks.rank() + 1) / ranks.size();
  const bool last = ranks.rank() == ranks.size() - 1;
  if (first == end && !last) return {};
  source.seek({.offset = first * source.batch_size() * source.replicas()});
  return evaluator.run(source, /*batches=*/last ? 0 : end - first, /*may_be_empty=*/true);
}

}  // namespace trainyard::train
