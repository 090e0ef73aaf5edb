// The time of a row of the monitors: by the clock, and in passes over the data.
#pragma once

#include <cstdint>

namespace trainyard::train {

class Trainer;

// Returns seconds since the Unix epoch.
double system_wall_clock();
// Returns the passes over the data at a global step.
double epoch_of(const Trainer& trainer, int64_t batch_size, int64_t examples_per_epoch);

}  // namespace trainyard::train
