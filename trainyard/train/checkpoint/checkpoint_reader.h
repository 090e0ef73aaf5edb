// Reads a checkpoint. Names, shapes, offsets and checksums are verified when it is opened, before anything is
// allocated.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::train {

// kIgnore is for tests only, which show what the checksums are for.
enum class Checksums { kVerify, kIgnore };

// Reads an open checkpoint, also when it is removed meanwhile. For one thread at a time.
class CheckpointReader : public core::StateReader {
 public:
  // Reads the manifest, then all of the tensor file once to compare checksums. Throws kNotFound when there is no such
  // directory, and kCorruptData when anything else is missing or changed. Throws kCorruptData, with their names, for
  // tensors that are not finite (must_be_finite()), and for an invalid entry (checkpoint_facts.h).
  CheckpointReader(const std::string& directory, core::FileSystem& files, Checksums checksums = Checksums::kVerify);
  // The same with the manifest that read_manifest() has returned for this directory.
  CheckpointReader(const std::string& directory, Manifest manifest, core::FileSystem& files,
                   Checksums checksums = Checksums::kVerify);

  const Manifest& manifest() const { return manifest_; }
  // Returns "float32 [10, 64]", "integer", "real" or "text".
  [[nodiscard]] std::string describe(const std::string& name) const;
  // Returns the names that have not been read so far, sorted.
  [[nodiscard]] std::vector<std::string> unread() const;

  bool has(const std::string& name) const override {
    return tensors_.contains(name) || manifest_.values.contains(name);
  }
  std::vector<std::string> names(std::string_view prefix = "") const override;
  void tensor(const std::string& name, at::Tensor& destination) const override;
  at::Tensor tensor(const std::string& name) const override;
  int64_t integer(const std::string& name) const override;
  double real(const std::string& name) const override;
  std::string text(const std::string& name) const override;
  void copy(const std::string& name, core::StateWriter& writer, const std::string& as) const override;

 private:
  const TensorEntry& entry(const std::string& name) const;
  template <typename T>
  const T& value(const std::string& name, std::string_view kind) const;
  [[noreturn]] void fail_missing(const std::string& name, std::string_view kind) const;
  void verify_tensor_file() const;
  void check(const TensorEntry& entry, uint32_t checksum) const;
  void read(const TensorEntry& entry, void* destination) const;

  std::string directory_;
  Checksums checksums_;
  Manifest manifest_;
  std::map<std::string, size_t> tensors_;  // indices in manifest_.tensors
  std::unique_ptr<core::ReadableFile> file_;
  mutable std::set<std::string> read_;
};

// Reads the manifest alone, not the tensor file. Throws kNotFound when there is no such directory, and kCorruptData
// when it has no manifest or a damaged one, or when the directory has the name of another step's checkpoint.
Manifest read_manifest(const std::string& directory, core::FileSystem& files);

// Does what load_checkpoint() (checkpoint.h) does, with a manifest that read_manifest() has returned.
void load_checkpoint(const CheckpointInfo& checkpoint, Manifest manifest, const CheckpointIdentity* expected,
                     core::Stateful& state, core::FileSystem& files);

// Throws kCorruptData unless the tensor file exists with the length in the manifest.
void require_tensor_file(const Manifest& manifest, const std::string& directory, core::FileSystem& files);

}  // namespace trainyard::train
