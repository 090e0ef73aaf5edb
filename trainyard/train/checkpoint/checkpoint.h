// Checkpoints: directories "model.ckpt-<global step>" in a train directory, complete or absent
// (docs/formats/checkpoint.md); and files of weights alone.
//
// Saving writes a new directory in the train directory under a temporary name (files, sync, manifest, sync), renames it
// and syncs the parent. The previous checkpoint is not touched before that. A crash at any moment leaves a checkpoint
// that loads.
//
//   CheckpointStore store("out/run1", 5);
//   store.save(trainer.global_step(), {.model = "resnet20"}, trainer);
//   load_checkpoint(find_checkpoint("out/run1"), &identity, trainer);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::train {
class CheckpointCopy;  // train/checkpoint/checkpoint_copy.h
struct CheckpointFacts;
struct WrittenTensors;  // train/checkpoint/checkpoint_writer.h
struct PositionGrid;    // train/checkpoint/position_embedding.h
}  // namespace trainyard::train

TRAINYARD_EXPORT_BEGIN
namespace trainyard::formats {
class TensorFile;
}
namespace trainyard::nn {
class ParameterSet;
}

namespace trainyard::train {

enum class CheckpointPurpose;

struct CheckpointInfo {
  std::string path{};  // <train_dir>/model.ckpt-<step>
  int64_t global_step = 0;
};

// The checkpoint of the best evaluation of a training, <train_dir>/best, and the value of which metric it has.
struct BestCheckpoint {
  CheckpointInfo info{};
  std::string metric{};
  double value = 0;
};

// Facts about the model in the manifest, which are checked on load: {"model", "resnet20"}.
struct CheckpointIdentity {
  std::string model{};
  std::string dataset{};
  int64_t num_classes = 0;
};

// Thrown (kCorruptData) when a state that is to be saved contains NaN or infinity in a tensor that must be finite
// (must_be_finite()). Names the first such tensor and the step.
class NonFiniteState : public core::Error {
 public:
  using core::Error::Error;
};

// Says (kCorruptData) that an intact checkpoint does not hold what was to be loaded from it.
class CheckpointMismatch : public core::Error {
 public:
  CheckpointMismatch(core::ErrorDetail detail, std::vector<std::string> missing)
      : Error(core::ErrorCode::kCorruptData, std::move(detail)), missing_(std::move(missing)) {}
  // Returns the names of the entries that were wanted and are not in the checkpoint, sorted.
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  std::vector<std::string> missing_;
};

// Only one process at a time may write into a directory; others may read it. Stores of one process write one after the
// other, whatever threads they belong to.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string directory, int64_t max_to_keep = 5,
                           core::FileSystem& files = core::local_file_system());

  // Removes what earlier crashes left behind, saves `state`, then removes the oldest intact checkpoints beyond
  // max_to_keep (0 or less keeps all). When it returns, the checkpoint is durable. When it throws (kIo, kNoSpace,
  // NonFiniteState, or what `state` threw), earlier checkpoints are unchanged. A checkpoint of the same step is
  // replaced; a damaged one of that step is set aside. Warns when old ones cannot be removed.
  CheckpointInfo save(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state);

  // Saves `state` as the best checkpoint, under the name "best", and replaces the previous one. It is not part of
  // list(), and no other save removes it.
  CheckpointInfo save_best(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state);

  // Do the same as save() and save_best() with a copy of a state. `values` are saved behind it. Tensors that a copy
  // with the same tensors was saved with are not written again: their file gets a second name (a hard link).
  CheckpointInfo save_copy(int64_t global_step, const CheckpointIdentity& identity, const CheckpointCopy& copy);
  CheckpointInfo save_best_copy(int64_t global_step, const CheckpointIdentity& identity, const CheckpointCopy& copy,
                                const core::Stateful& values);

  // Returns the intact checkpoints by step, oldest first, as checked by manifest and lengths (list_checkpoints() also
  // returns the damaged ones). Returns none when the directory does not exist.
  [[nodiscard]] std::vector<CheckpointInfo> list() const;
  // Returns the newest checkpoint. Throws kCorruptData when a damaged one is not older than the newest intact one.
  [[nodiscard]] std::optional<CheckpointInfo> latest() const;

  // Renames a damaged checkpoint to "<name>.damaged-<process>-<number>", which is neither read as a checkpoint nor
  // removed. Returns the new path.
  std::string set_aside(const std::string& path);

  const std::string& directory() const { return directory_; }
  core::FileSystem& files() const { return *files_; }

 private:
  CheckpointInfo write(const std::string& name, int64_t global_step, const CheckpointIdentity& identity,
                       const core::Stateful& state, WrittenTensors* tensors = nullptr);
  CheckpointInfo write_and_prune(int64_t global_step, const CheckpointIdentity& identity, const core::Stateful& state,
                                 WrittenTensors* tensors);
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

// Finds a checkpoint. `path` is its directory, or a train directory, of which the newest one is returned. Throws
// kNotFound with the text "No checkpoint file found in dir:...", kCorruptData when the checkpoint's manifest, or the
// newest checkpoint of a train directory, is damaged, and kUnsupported for a directory with a TensorFlow checkpoint.
CheckpointInfo find_checkpoint(const std::string& path, core::FileSystem& files = core::local_file_system());

// What to do when the newest checkpoint of a train directory is damaged.
enum class DamagedCheckpoints {
  kStop,      // throw kCorruptData
  kPassOver,  // take the newest intact one, with a warning for each damaged one
  kSetAside,  // the same, and rename the damaged ones: for the one process that writes into the directory
};

struct OpenedCheckpoint {
  CheckpointInfo info{};
  CheckpointIdentity identity{};
  std::unique_ptr<core::StateReader> reader{};
};

// Combines find_checkpoint() and open_checkpoint(), safe against a training that saves and removes checkpoints at the
// same time. When a checkpoint is removed before it is open, the newest one is opened instead. Not for kSetAside.
OpenedCheckpoint open_newest_checkpoint(const std::string& path, const CheckpointIdentity* expected,
                                        DamagedCheckpoints damaged = DamagedCheckpoints::kStop,
                                        core::FileSystem& files = core::local_file_system());

using CheckpointLook = std::function<void(const CheckpointInfo&, const CheckpointFacts&)>;
// Loads the newest checkpoint of the store's directory into `state` and returns it, or returns nothing and leaves
// `state` unchanged when there is none. `look` is called with the checkpoint, and what it says of its model, before it
// is loaded and may throw. Reads the manifest once. Throws what load_checkpoint() and `look` throw.
std::optional<CheckpointInfo> resume_newest_checkpoint(CheckpointStore& store, const CheckpointIdentity* expected,
                                                       core::Stateful& state,
                                                       DamagedCheckpoints damaged = DamagedCheckpoints::kStop,
                                                       const CheckpointLook& look = {});

// Opens a checkpoint. The manifest and every checksum are verified before the reader is returned. Fields of `expected`
// that are not empty (not 0) must equal the saved ones: throws kInvalidArgument, with both names, for a checkpoint of
// another model. Throws kCorruptData, with file, tensor, expected and actual, for a truncated or damaged one.
std::unique_ptr<core::StateReader> open_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected,
                                                   core::FileSystem& files = core::local_file_system());

// Opens a checkpoint and loads all of `state` from it. When they do not fit, a CheckpointMismatch lists the entries
// that are missing in the checkpoint, those that only the checkpoint has, and those of another shape or type. Warns of
// saved entries that `state` did not read.
void load_checkpoint(const CheckpointInfo& checkpoint, const CheckpointIdentity* expected, core::Stateful& state,
                     core::FileSystem& files = core::local_file_system());

CheckpointIdentity read_checkpoint_identity(const CheckpointInfo& checkpoint,
                                            core::FileSystem& files = core::local_file_system());

// What load_weights() has loaded from a file of weights.
struct LoadedWeights {
  int64_t tensors = 0;              // tensors that were loaded
  int64_t file_classes = 0;         // classes of the file's head, when the head is left out; else 0
  std::vector<std::string> head{};  // names of the tensors that keep their initial values
};

// Loads a file of weights (formats/tensors/tensor_file.h): parameters and statistics by name, without the training's
// state.
//
//   load_weights(formats::open_tensor_file("resnet50.pth"), parameters, 1000);
//
// Copies the file's tensors of any number type into `set`, which is allocated and initialized. Names and shapes must be
// the same, or the names those of earlier releases of torchvision (norm.1 for norm1), with these exceptions:
//
//   - Counts of batches (num_batches_tracked), which no computation reads, are left out.
//   - A head of another number of classes stays as it is: one layer, or several linear ones (auxiliary classifiers),
//     all of whose tensors have num_classes as their first size here and one other number in the file.
//   - A position embedding that `positions` lists is interpolated where the file's is for other patches.
//   - Tensors that `new_head` names stay as they are, also where the file's have their shape, or where it has none.
//
// Files of auxiliary classifiers that the graph lacks, and checkpoints of TensorFlow, go through named_for_graph()
// (checkpoint/tensorflow_weights.h) first.
//
// Throws kInvalidArgument with the missing, unexpected and misshapen names, before anything is copied. Throws
// kCorruptData with the tensors that hold NaN or infinity; then `set` is not to be used.
LoadedWeights load_weights(const formats::TensorFile& file, nn::ParameterSet& set, int64_t num_classes,
                           const std::vector<PositionGrid>& positions, const std::vector<std::string>& new_head = {});
// Does the same without position embeddings that may be of another size.
LoadedWeights load_weights(const formats::TensorFile& file, nn::ParameterSet& set, int64_t num_classes);

// Returns all parameters and statistics, in float32, in the form that load_weights() accepts, as if read from a file
// `path`. The values are copied.
[[nodiscard]] formats::TensorFile tensor_file_of(const nn::ParameterSet& set, const std::string& path);

// Writes all parameters and statistics as safetensors in float32, in the order of their declaration. `metadata` is
// added to {"format": "pt"}.
void save_weights(const std::string& path, const nn::ParameterSet& set,
                  std::map<std::string, std::string> metadata = {});

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
