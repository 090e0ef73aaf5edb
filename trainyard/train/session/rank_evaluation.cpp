#include "trainyard/train/session/rank_evaluation.h"

#include "trainyard/core/base/error.h"
#include "trainyard/train/evaluation/evaluation_sum.h"
#include "trainyard/train/evaluation/shared_statistics.h"

namespace trainyard::train {

void begin_rank_evaluation(parallel::ProcessGroup* ranks, int64_t global_step, nn::ParameterSet& parameters) {
  if (ranks == nullptr) return;
  ranks->progress("evaluation", global_step);
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

}  // namespace trainyard::train
