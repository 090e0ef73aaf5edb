// Reads TensorFlow's checkpoints (docs/formats/tensorflow_checkpoint.md): a folder with "checkpoint", a text that names
// the newest one, and for each of them "PREFIX.index", a table of names, types, shapes and places, and
// "PREFIX.data-00000-of-00001", ..., the numbers. Nothing is written to such a folder.
//
//   const formats::TensorFlowCheckpoint checkpoint = formats::open_tensorflow_checkpoint("train_dir");
//   for (const formats::StoredTensor& tensor : checkpoint.tensors.tensors()) {
//     use(tensor.name, checkpoint.tensors.read_floats(tensor));  // "v0/cg/conv0/conv2d/kernel", [3, 3, 3, 16]: HWIO
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensor_file.h"

namespace trainyard::formats {

// Returns the names of the files in a directory that belong to a checkpoint or a SavedModel of TensorFlow, sorted:
// "checkpoint", "model.ckpt-1243.index", "model.ckpt-1243.data-00000-of-00001", "model.ckpt-1243.meta",
// "saved_model.pb". Returns none when the directory does not exist. Throws kIo.
[[nodiscard]] std::vector<std::string> tensorflow_checkpoint_files(const std::string& directory,
                                                                   core::FileSystem& files = core::local_file_system());

// Throws kUnsupported, with the names of the files, when `path` is a directory with such files, one of the files, or
// the path of a checkpoint in TensorFlow's sense: the part before ".index". Does nothing for any other path. For paths
// that are written to, and for readers that know checkpoints of Trainyard only.
void refuse_tensorflow_checkpoint(const std::string& path, core::FileSystem& files = core::local_file_system());

// Returns true when `path` is what refuse_tensorflow_checkpoint() refuses.
[[nodiscard]] bool is_tensorflow_checkpoint(const std::string& path,
                                            core::FileSystem& files = core::local_file_system());

// Returns the prefix of the checkpoint that `path` means: of a directory, or of a file "checkpoint", the one that the
// text names as model_checkpoint_path (by its name in that directory where an absolute path no longer exists; without
// such a text the only one); of "PREFIX.index", "PREFIX.meta" and "PREFIX.data-..." the prefix; of a prefix itself.
// Throws kNotFound when its index does not exist or several checkpoints are there and no text chooses one, kCorruptData
// for a malformed text, and kUnsupported for a SavedModel.
[[nodiscard]] std::string find_tensorflow_checkpoint(const std::string& path,
                                                     core::FileSystem& files = core::local_file_system());

// An entry whose elements are not numbers that TensorFile reads: texts, complex numbers, quantized types.
struct UnreadTensor {
  std::string name{};
  std::string type{};  // TensorFlow's name, "string", or "type 23" where the number is unknown
  std::vector<int64_t> shape{};
};

struct TensorFlowCheckpoint {
  std::string prefix{};  // path without ".index"
  // All tensors of numbers, sorted by name, as TensorFlow names and lays them out: kernels of convolutions are [H, W,
  // in, out], matrices [in, out]. The parts of partitioned variables are joined.
  TensorFile tensors;
  std::vector<UnreadTensor> unread{};
  std::optional<int64_t> global_step{};  // the integer of that name; unset where there is none
};

// Opens the checkpoint that find_tensorflow_checkpoint() finds. Verifies the checksums of all blocks of the index and
// of all numbers, so it reads every file once. Allocates no more than a small multiple of the files' sizes, whatever
// their lengths claim. Partitioned variables and numbers in big-endian order are held in memory.
// Throws kCorruptData, with file, tensor, expected and actual, and kNotFound for a missing shard.
[[nodiscard]] TensorFlowCheckpoint open_tensorflow_checkpoint(const std::string& path,
                                                              core::FileSystem& files = core::local_file_system());

// Returns the shard with the given number of the given count.
using OpenShard = std::function<std::unique_ptr<core::ReadableFile>(int64_t shard, int64_t shards)>;

// Does the same for an index and shards that are open, or are opened when an entry needs them.
[[nodiscard]] TensorFlowCheckpoint read_tensorflow_checkpoint(const core::ReadableFile& index,
                                                              const std::string& prefix, const OpenShard& open_shard);

}  // namespace trainyard::formats
