// Checkpoints: directories "model.ckpt-<global step>" in a train directory, complete or absent
// (docs/formats/checkpoint.md).
//
// Saving writes a new directory beside them under a temporary name (files, sync, manifest, sync), renames it and syncs
// the parent; the previous checkpoint is never touched before that. A crash at any moment leaves one that loads.
//
//   CheckpointStore store("out/run1", 5);
//   store.save(trainer.global_step(), {.model = "resnet20"}, trainer);
//   load_checkpoint(find_checkpoint("out/run1"), &identity, trainer);
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

// One store at a time writes into a directory; others may read it.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string directory, int64_t max_to_keep = 5,
                           core::FileSystem& files = core::local_file_system());

  // Removes what earlier crashes left behind, saves `state`, then removes the oldest beyond max_to_keep (<= 0: keeps
  // all). When it returns, the checkpoint is durable; when it throws (kIo, kNoSpace, or what `state` threw), those
  // before are as they were. A checkpoint of the same step is replaced. Oldest ones that cannot be removed are a
  // warning.
  CheckpointInfo save(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state);

  // By step, oldest first; only complete ones (with a manifest that reads). Damaged ones are a warning. No such
  // directory: none.
  std::vector<CheckpointInfo> list() const;
  std::optional<CheckpointInfo> latest() const;

 private:
  void clean_up();
  void commit(const std::string& temporary, const std::string& path);
  void prune(int64_t saved_step);

  std::string directory_;
  int64_t max_to_keep_;
  core::FileSystem* files_;
};

// `path` is a checkpoint directory, or a train directory whose latest complete one is meant. Throws kNotFound with
// upstream's text "No checkpoint file found in dir:...".
CheckpointInfo find_checkpoint(const std::string& path, core::FileSystem& files = core::local_file_system());

// The step at the end of a checkpoint's name, 0 when there is none: "model.ckpt-1243" -> 1243.
int64_t checkpoint_step(std::string_view path);

// Opens a checkpoint: the manifest and every checksum are verified before the reader is returned. Fields of `expected`
// that are not empty (not 0) must be the saved ones: kInvalidArgument for a checkpoint of another model, with both
// names. A truncated or damaged one: kCorruptData with file, tensor, expected and actual.
std::unique_ptr<core::StateReader> open_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected,
                                                   core::FileSystem& files = core::local_file_system());

// Opens a checkpoint and loads all of `state` from it. When they do not fit, the error lists what is missing in the
// checkpoint, what only the checkpoint has, and what is of another shape or type. Saved entries that `state` did not
// ask for are a warning.
void load_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected, core::Stateful& state,
                     core::FileSystem& files = core::local_file_system());

CheckpointIdentity read_checkpoint_identity(const CheckpointInfo& checkpoint,
                                            core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::train
