// Writes the two files of a checkpoint into a directory that the caller has made; the caller renames it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {

// The tensor file of a complete checkpoint, to which other checkpoints with the same tensors may be linked.
struct WrittenTensors {
  std::string path{};  // empty: not written yet
  uint64_t file_id = 0;
  std::vector<TensorEntry> entries{};
  uint64_t bytes = 0;  // of the whole file
};

// Throws kInvalidArgument unless a checkpoint can hold the tensor, and kUnsupported for a type that it does not hold.
void require_savable(const std::string& name, const at::Tensor& value);
// Throws NonFiniteState with the tensor and the step: `count` of its `elements` are NaN or infinite.
[[noreturn]] void refuse_non_finite(const std::string& name, int64_t global_step, int64_t count, int64_t elements);

// Writes tensors to the file in the order of the calls. Copies those that are not contiguous in CPU memory, one at a
// time. Throws kInvalidArgument for a name that is empty, too long or used twice, and NonFiniteState for a tensor with
// NaN or infinity (must_be_finite()).
class CheckpointWriter : public core::StateWriter {
 public:
  // `same`: what a CheckpointCopy says of its tensors, which are those that are going to be written and were found
  // finite when it was made. If they have been written, and while that file is in its place, it gets a second name
  // instead of being written again. Null: the tensors are those of no copy.
  CheckpointWriter(std::string directory, int64_t global_step, core::FileSystem& files,
                   const WrittenTensors* same = nullptr);

  void tensor(const std::string& name, const at::Tensor& value) override;
  void integer(const std::string& name, int64_t value) override;
  void real(const std::string& name, double value) override;
  void text(const std::string& name, std::string_view value) override;

  // Makes both files and their names durable: tensors, then the manifest, then the directory.
  void finish(const CheckpointIdentity& identity);

  // Returns the tensor file as it is described in the manifest, with its path. For after finish().
  [[nodiscard]] WrittenTensors written() const;

 private:
  bool link(const WrittenTensors& same);
  void claim(const std::string& name);
  void note_linked(const std::string& name, const at::Tensor& value);

  std::string directory_;
  core::FileSystem& files_;
  bool looks_;                                   // whether values are finite
  const WrittenTensors* linked_ = nullptr;       // null: the tensors are written
  std::unique_ptr<core::WritableFile> tensors_;  // null: they are linked
  Manifest manifest_;
  std::set<std::string> names_;
};

}  // namespace trainyard::train
