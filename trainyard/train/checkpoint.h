// Checkpoints: directories "model.ckpt-<global step>" in a train directory, complete or absent
// (docs/formats/checkpoint.md).
//
// Saving writes a new directory beside them under a temporary name (files, sync, manifest, sync), renames it and syncs
// the parent; the previous checkpoint is never touched before that. A crash at any moment leaves one that loads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/file_system.h"
#include "trainyard/core/stateful.h"

namespace trainyard::train {

struct CheckpointInfo {
  std::string path;         // <train_dir>/model.ckpt-<step>
  int64_t global_step = 0;  // from the name; 0 when it has no number
};

// Free-standing facts in the manifest, checked on load: {"model", "resnet20"}.
struct CheckpointIdentity {
  std::string model;
  std::string dataset;
  int64_t num_classes = 0;
};

class CheckpointStore {
 public:
  CheckpointStore(std::string directory, int64_t max_to_keep = 5, core::FileSystem& files = core::local_file_system());

  // Saves `state`, then removes the oldest beyond max_to_keep (<= 0: keeps all) and what earlier crashes left behind.
  CheckpointInfo save(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state);

  // By step, oldest first; only complete ones (with a manifest that reads).
  std::vector<CheckpointInfo> list() const;
  std::optional<CheckpointInfo> latest() const;

 private:
  std::string directory_;
  int64_t max_to_keep_;
  core::FileSystem* files_;
};

// `path` is a checkpoint directory, or a train directory whose latest one is meant. Throws kNotFound with upstream's
// text "No checkpoint file found in dir:...".
CheckpointInfo find_checkpoint(const std::string& path, core::FileSystem& files = core::local_file_system());

// Opens a checkpoint: the manifest and every checksum are verified before the reader is returned. A checkpoint of
// another model, a truncated or damaged one: an error that names file, tensor, expected and actual.
std::unique_ptr<core::StateReader> open_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected,
                                                   core::FileSystem& files = core::local_file_system());
CheckpointIdentity read_checkpoint_identity(const CheckpointInfo& checkpoint,
                                            core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::train
