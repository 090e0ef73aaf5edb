// Checkpoints: directories "model.ckpt-<global step>" in a train directory, complete or absent
// (docs/formats/checkpoint.md).
//
// Saving writes a new directory beside them under a temporary name (files, sync, manifest, sync), renames it and syncs
// the parent. The previous checkpoint is never touched before that. A crash at any moment leaves one that loads.
//
//   CheckpointStore store("out/run1", 5);
//   store.save(trainer.global_step(), {.model = "resnet20"}, trainer);
//   load_checkpoint(find_checkpoint("out/run1"), &identity, trainer);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

enum class CheckpointPurpose;

struct CheckpointInfo {
  std::string path{};  // <train_dir>/model.ckpt-<step>
  int64_t global_step = 0;
};

// What the model is, as facts in the manifest that are checked on load: {"model", "resnet20"}.
struct CheckpointIdentity {
  std::string model{};
  std::string dataset{};
  int64_t num_classes = 0;
};

// Says (kCorruptData) that what was to be saved holds NaN or infinity where only finite values are of use
// (must_be_finite()). Names the first such tensor and the step.
class NonFiniteState : public core::Error {
 public:
  using core::Error::Error;
};

// One store at a time writes into a directory; others may read it.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string directory, int64_t max_to_keep = 5,
                           core::FileSystem& files = core::local_file_system());

  // Removes what earlier crashes left behind, saves `state`, then removes the oldest intact checkpoints beyond
  // max_to_keep (0 or less keeps all). When it returns, the checkpoint is durable. When it throws (kIo, kNoSpace,
  // NonFiniteState, or what `state` threw), those before are as they were. A checkpoint of the same step is replaced; a
  // damaged one of that step is set aside. Old ones that cannot be removed are a warning.
  CheckpointInfo save(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state);

  // Saves `state` as the best one, under the name "best", in the place of the one before. It is no part of list(), and
  // no other save removes it.
  CheckpointInfo save_best(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state);

  // Returns the intact checkpoints by step, oldest first, judged by manifest and lengths (list_checkpoints() has the
  // damaged ones, too). Returns none where there is no such directory.
  [[nodiscard]] std::vector<CheckpointInfo> list() const;
  // Returns the newest one. Throws kCorruptData when a damaged one is not older than the newest intact one.
  [[nodiscard]] std::optional<CheckpointInfo> latest() const;

  // Renames a damaged checkpoint to "<name>.damaged-<process>-<number>", where nothing takes it for a checkpoint and
  // nothing removes it. Returns the new path.
  std::string set_aside(const std::string& path);

  const std::string& directory() const { return directory_; }
  core::FileSystem& files() const { return *files_; }

 private:
  CheckpointInfo write(const std::string& name, int64_t global_step, const CheckpointIdentity& identity,
                       const core::Stateful& state);
  void clean_up();
  void clean_up_replaced(const std::string& path, const std::string& final_path);
  void remove_replaced(const std::string& path);
  void commit(const std::string& temporary, const std::string& path);
  void prune(int64_t saved_step);
  std::string unused_path(const std::string& path, CheckpointPurpose purpose) const;

  std::string directory_;
  int64_t max_to_keep_;
  core::FileSystem* files_;
};

// Finds a checkpoint. `path` is its directory, or a train directory, whose newest one is meant. Throws kNotFound with
// the text "No checkpoint file found in dir:...", kCorruptData when the checkpoint's manifest, or, in a train
// directory, the newest one is damaged, and kUnsupported for a directory with a checkpoint of TensorFlow.
CheckpointInfo find_checkpoint(const std::string& path, core::FileSystem& files = core::local_file_system());

// What to do where the newest checkpoint of a train directory is damaged.
enum class DamagedCheckpoints {
  kStop,      // throw kCorruptData
  kPassOver,  // take the newest one whose bytes are all sound, with a warning for each damaged one
  kSetAside,  // the same, and rename the damaged ones: for the one process that writes into the directory
};

struct OpenedCheckpoint {
  CheckpointInfo info{};
  CheckpointIdentity identity{};
  std::unique_ptr<core::StateReader> reader{};
};

// Does find_checkpoint() and open_checkpoint() in one, beside a training that saves and removes checkpoints meanwhile.
// One that goes away before it is open is no error: the newest one is taken then. Not with kSetAside.
OpenedCheckpoint open_newest_checkpoint(const std::string& path, const CheckpointIdentity* expected,
                                        DamagedCheckpoints damaged = DamagedCheckpoints::kStop,
                                        core::FileSystem& files = core::local_file_system());

// Loads the newest checkpoint of the store's directory into `state` and returns it; none: there is none, and `state` is
// as it was. `look` sees the checkpoint before it is loaded and may refuse it. Throws what load_checkpoint() and `look`
// throw.
std::optional<CheckpointInfo> resume_newest_checkpoint(CheckpointStore& store, const CheckpointIdentity* expected,
                                                       core::Stateful& state,
                                                       DamagedCheckpoints damaged = DamagedCheckpoints::kStop,
                                                       const std::function<void(const CheckpointInfo&)>& look = {});

// Opens a checkpoint. The manifest and every checksum are verified before the reader is returned. Fields of `expected`
// that are not empty (not 0) must be the saved ones: throws kInvalidArgument, with both names, for a checkpoint of
// another model. Throws kCorruptData, with file, tensor, expected and actual, for a truncated or damaged one.
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
TRAINYARD_EXPORT_END
