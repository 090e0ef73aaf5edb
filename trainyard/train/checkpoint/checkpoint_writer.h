// Writes the two files of a checkpoint into a directory that the caller has made; the caller renames it.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {

// Writes tensors to the file in the order of the calls. Copies those that are not contiguous in CPU memory, one at a
// time. Throws kInvalidArgument for a name that is empty, too long or used twice, and NonFiniteState for a tensor with
// NaN or infinity (must_be_finite()).
class CheckpointWriter : public core::StateWriter {
 public:
  CheckpointWriter(std::string directory, int64_t global_step, core::FileSystem& files);

  void tensor(const std::string& name, const at::Tensor& value) override;
  void integer(const std::string& name, int64_t value) override;
  void real(const std::string& name, double value) override;
  void text(const std::string& name, std::string_view value) override;

  // Makes both files and their names durable: tensors, then the manifest, then the directory.
  void finish(const CheckpointIdentity& identity);

 private:
  void claim(const std::string& name);
  void refuse_non_finite(const TensorEntry& entry, int64_t count) const;

  std::string directory_;
  core::FileSystem& files_;
  std::unique_ptr<core::WritableFile> tensors_;
  Manifest manifest_;
  std::set<std::string> names_;
};

}  // namespace trainyard::train
