// Evaluates on all ranks of a run: each rank evaluates its part of the samples, and all get the same result.
#pragma once

#include <cstdint>
#include <functional>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

// In both, null `ranks` means that this process is alone.

// Collective: reports that this process evaluates, and copies rank 0's batch norm statistics to all ranks.
void begin_rank_evaluation(parallel::ProcessGroup* ranks, int64_t global_step, nn::ParameterSet& parameters);

// Collective: returns the evaluation over the samples of all ranks. `own` evaluates this rank's part, which may be
// empty. With `shared` false each rank has evaluated all samples, and the result is its own. Throws kCancelled on all
// ranks where `own` throws it on one, and what else `own` throws.
[[nodiscard]] Evaluation evaluate_over_ranks(parallel::ProcessGroup* ranks, const std::function<Evaluation()>& own,
                                             bool shared = true);

}  // namespace trainyard::train
