// The manifest of a checkpoint: the index of its tensor file, and all entries that are not tensors
// (docs/formats/checkpoint.md).
//
//   std::string text = encode_manifest(manifest);
//   Manifest same = decode_manifest(text, "model.ckpt-5/manifest.json");
//
// The text is JSON whose last member is the CRC32C of all bytes before it, so that any changed byte is detected.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/core/base/error.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTensorFile = "tensors.bin";
inline constexpr int kCheckpointVersion = 1;
inline constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
inline constexpr size_t kMaxNameBytes = 1024;
inline constexpr size_t kMaxDimensions = 16;

// The tensor file opens with these 16 bytes; tensors follow without gaps.
inline constexpr std::string_view kTensorFileHeader{"TRAINYRD\x01\x00\x00\x00\x10\x00\x00\x00", 16};

struct TensorEntry {
  std::string name{};
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape{};
  uint64_t offset = 0;  // bytes, in the tensor file
  uint64_t bytes = 0;
  uint32_t checksum = 0;  // CRC32C of the bytes
};

using ManifestValue = std::variant<int64_t, double, std::string>;

struct Manifest {
  int64_t global_step = 0;
  CheckpointIdentity identity{};
  uint64_t tensor_file_bytes = kTensorFileHeader.size();
  std::vector<TensorEntry> tensors{};  // by offset
  std::map<std::string, ManifestValue> values{};
};

std::string encode_manifest(const Manifest& manifest);

// Returns true when the text is complete and unchanged, by its checksum alone.
[[nodiscard]] bool manifest_is_intact(std::string_view text);

// Checks the checksum, then every type and bound: sizes against shapes (with overflow), offsets against each other and
// the file, names. `path` is for the messages. Throws kCorruptData, or kUnsupported for another version.
Manifest decode_manifest(std::string_view text, const std::string& path);

// Returns "float32", "int64", ... Throws kUnsupported for types that checkpoints do not hold.
[[nodiscard]] std::string_view dtype_name(at::ScalarType dtype);
// Returns "float32 [64, 3, 7, 7]".
[[nodiscard]] std::string describe_tensor(at::ScalarType dtype, const std::vector<int64_t>& shape);

// Returns a kCorruptData error: "damaged checkpoint: <problem>", and what to do about it.
[[nodiscard]] core::Error damaged_checkpoint(std::string problem, std::string where, std::string expected,
                                             std::string actual);
// Returns true when an error is a damaged_checkpoint().
[[nodiscard]] bool is_damage(const core::Error& error);

}  // namespace trainyard::train
