// An evaluation whose samples several processes share, each its part.
#pragma once

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

// Collective: returns what all ranks' samples come to, the same on all ranks. Counts are whole numbers, so that they do
// not depend on who evaluated what; the losses are added in rank order. The seconds are those of the slowest rank. A
// rank may have no samples. Throws kCancelled on all ranks where one of them has `stopped`: its part is none.
Evaluation sum_over_ranks(parallel::ProcessGroup& ranks, const Evaluation& own, bool stopped = false);

}  // namespace trainyard::train
