// What checkpoints a train directory holds, and which of them are damaged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {

// A directory gets the name of a checkpoint only when it is complete. One that has the name and cannot be read was
// damaged afterwards.
struct DamagedCheckpoint {
  CheckpointInfo info;
  core::Error error;  // kCorruptData: names the file and what is wrong with it
};

// Both by step, oldest first. Checkpoints of a version that this release does not know count as intact.
struct CheckpointListing {
  std::vector<CheckpointInfo> intact;
  std::vector<DamagedCheckpoint> damaged;

  // Returns the damage that a run must not pass over: that of a checkpoint which is not older than the newest intact
  // one.
  const DamagedCheckpoint* newest_damage() const;
};

// How often who reads looks again: a training that saves all the time may take away what was just listed or found, but
// it is not that often as quick as this.
inline constexpr int kMostLooks = 10;

// Looks at names, manifests and lengths; the bytes of tensors are compared with their checksums when one is opened. A
// training may save and remove checkpoints meanwhile: what goes away while it is looked at is not damage. No such
// directory: an empty listing. Throws kIo.
CheckpointListing list_checkpoints(const std::string& directory, core::FileSystem& files);

}  // namespace trainyard::train
