// Gathers what the ranks of a training have counted: how they spend their time, to find the one that the others wait
// for, and the samples that they could not read.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Collective: returns each rank's seconds, in rank order (TimeShares::sum()).
std::vector<StepTimes> gather_times(parallel::ProcessGroup& ranks, const StepTimes& own);

// Collective: returns how many different samples were bad for one rank or more. `source` is that of this rank.
int64_t gather_bad_samples(parallel::ProcessGroup& ranks, const data::BatchSource& source);

}  // namespace trainyard::train
