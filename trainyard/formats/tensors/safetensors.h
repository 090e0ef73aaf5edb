// Reads and writes safetensors files: a header in JSON with names, types, shapes and offsets, then the numbers
// (docs/formats/safetensors.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensor_file.h"

namespace trainyard::formats {

// Returns the tensors in the header, in the order of offsets in the file. Throws kCorruptData, naming the file and the
// tensor, when the header is longer than the file or nested, a name is duplicate, a type is unknown, or tensors
// overlap, leave gaps or end after the file. `metadata`, if not null, gets the texts of "__metadata__".
[[nodiscard]] std::vector<StoredTensor> read_safetensors_header(const core::ReadableFile& file,
                                                                std::map<std::string, std::string>* metadata = nullptr);

// One tensor to write. `bytes` has the product of `shape` elements of `type` in C order, each little-endian.
struct TypedTensor {
  std::string name{};
  TensorType type = TensorType::kFloat32;
  std::vector<int64_t> shape{};
  std::span<const std::byte> bytes{};
};

// Writes tensors in the given order, atomically. `metadata` has texts by name; other programs expect {"format": "pt"}.
// Throws kInvalidArgument for a duplicate name, for bytes that do not fit a shape, and for an unsigned type of more
// than 8 bits, which the format does not have.
void write_safetensors(const std::string& path, std::span<const TypedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       core::FileSystem& files = core::local_file_system());

// The same for float32. `values` has the product of `shape` elements.
struct FloatTensor {
  std::string name{};
  std::vector<int64_t> shape{};
  std::span<const float> values{};
};

// Writes float32 tensors as the function for TypedTensor does.
void write_safetensors(const std::string& path, std::span<const FloatTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::formats
