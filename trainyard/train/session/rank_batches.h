// Selects the batches of one process of a run from a source that returns those of all processes.
#pragma once

#include <memory>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::train {

// Returns a source of the batches of this process's replicas. `all` returns a batch for each replica of all processes,
// in rank order. Positions are those of `all`, so that a run which is resumed with another number of processes
// continues at the same sample. Returns `all` itself where this process is alone.
[[nodiscard]] std::shared_ptr<data::BatchSource> batches_of_rank(std::shared_ptr<data::BatchSource> all,
                                                                 const OpenDevices& devices);

}  // namespace trainyard::train
