// Resumes several processes from a checkpoint: rank 0 alone reads it and broadcasts it. The others need no directory.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "trainyard/core/base/stateful.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {

// Collective: loads into every rank's `state` what `load` loads into rank 0's from a checkpoint. `load` runs on rank 0
// alone and returns the checkpoint that it has loaded, with `state` as loaded from it; nullopt when there is none, and
// all states are unchanged. Returns the same on all ranks, with rank 0's path. Throws what `load` throws, and what
// loading throws on a rank, on all ranks the same. `files`: where the checkpoint is.
//
// States must not depend on the rank, except for entries that rank 0 does not save.
std::optional<CheckpointInfo> load_shared(parallel::ProcessGroup& ranks, core::Stateful& state,
                                          const std::function<std::optional<CheckpointInfo>()>& load,
                                          core::FileSystem& files = core::local_file_system());

// Collective: broadcasts the checkpoint that rank 0 has opened. `open` runs on rank 0 alone, and returns a null reader
// when there is none. Throws what it throws, on all ranks. The other ranks get a copy in memory.
OpenedCheckpoint open_shared(parallel::ProcessGroup& ranks, const std::function<OpenedCheckpoint()>& open);

}  // namespace trainyard::train
