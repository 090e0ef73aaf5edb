// Lists the checkpoints of a train directory, intact and damaged ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {

// A directory with the name of a checkpoint that cannot be read. It got the name only when it was complete, so it was
// damaged afterwards.
struct DamagedCheckpoint {
  CheckpointInfo info;
  core::Error error;  // kCorruptData: names the file and what is wrong with it
};

// Both by step, oldest first. Checkpoints of a version that this release does not know count as intact.
struct CheckpointListing {
  std::vector<CheckpointInfo> intact;
  std::vector<DamagedCheckpoint> damaged;

  // Returns the damage that a run must not ignore: that of a checkpoint which is not older than the newest intact one.
  const DamagedCheckpoint* newest_damage() const;
};

// How often readers retry: a running training may remove a checkpoint that was just listed or found, but not this often
// in a row.
inline constexpr int kMostLooks = 10;

// Checks names, manifests and lengths; checksums of tensors are verified when a checkpoint is opened. A training may
// save and remove checkpoints at the same time: a checkpoint that is removed meanwhile does not count as damaged.
// Returns an empty listing when the directory does not exist. Throws kIo.
CheckpointListing list_checkpoints(const std::string& directory, core::FileSystem& files);

}  // namespace trainyard::train
