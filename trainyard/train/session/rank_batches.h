// The batches of one process of a run, out of a source that gives those of all.
#pragma once

#include <memory>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::train {

// Returns a source of the batches that this process's replicas take of `all`, which gives a batch for each replica of
// all processes, in rank order. Positions are those of `all`, so that another number of processes continues where these
// have stopped. Returns `all` itself where this process is alone.
[[nodiscard]] std::shared_ptr<data::BatchSource> batches_of_rank(std::shared_ptr<data::BatchSource> all,
                                                                 const OpenDevices& devices);

}  // namespace trainyard::train
