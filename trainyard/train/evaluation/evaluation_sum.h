// Combines the parts of an evaluation that several processes share.
#pragma once

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

// Collective: returns the evaluation of all ranks' samples, the same on all ranks. Counts are integers, so they do not
// depend on the distribution of samples; the losses are added in rank order. The seconds are those of the slowest rank.
// A rank may have no samples. Throws kCancelled on all ranks when one of them has `stopped`, because its part is
// incomplete.
Evaluation sum_over_ranks(parallel::ProcessGroup& ranks, const Evaluation& own, bool stopped = false);

}  // namespace trainyard::train
