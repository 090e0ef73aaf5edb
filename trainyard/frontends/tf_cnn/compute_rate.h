// Computes how much of the machine's speed a run uses.
#pragma once

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/callbacks/run_summary.h"

namespace trainyard::frontends {

// A training image costs three times its forward flops, and an image in inference once. The limit is the saved one of
// this machine, for fp32.
train::ComputeRate compute_rate(const PreparedRun& run, double images_per_second);

// Logs one line for runs that end without a summary, or nothing when nothing is known.
void log_compute_rate(const train::ComputeRate& rate);

}  // namespace trainyard::frontends
