// Gathers how the ranks of a training spend their time, to find the one that the others wait for.
#pragma once

#include <vector>

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Collective: returns each rank's seconds, in rank order (TimeShares::sum()).
std::vector<StepTimes> gather_times(parallel::ProcessGroup& ranks, const StepTimes& own);

}  // namespace trainyard::train
