// How much of the machine a run of the benchmark door used.
#pragma once

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/callbacks/run_summary.h"

namespace trainyard::frontends {

// A training image costs three times its forward flops, one that is only run forward once. The limit is what was kept
// of this machine, for fp32.
train::ComputeRate compute_rate(const PreparedRun& run, double images_per_second);

// For runs that end without a summary: one line for people, none where there is nothing to say.
void log_compute_rate(const train::ComputeRate& rate);

}  // namespace trainyard::frontends
