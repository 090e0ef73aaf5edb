// How the ranks of a training have spent their time: which one the others wait for.
#pragma once

#include <vector>

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Collective: returns each rank's seconds, in rank order (TimeShares::sum()).
std::vector<StepTimes> gather_times(parallel::ProcessGroup& ranks, const StepTimes& own);

}  // namespace trainyard::train
