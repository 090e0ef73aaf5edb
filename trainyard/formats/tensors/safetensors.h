// safetensors files: a header in JSON with names, types, shapes and places, then the numbers
// (docs/formats/safetensors.md).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensor_file.h"

namespace trainyard::formats {

// What the header tells, in the order of places. Throws kCorruptData naming the file and the tensor: a header that is
// longer than the file or nested, names that come twice, unknown types, tensors that overlap, leave gaps or end behind
// the file.
// `metadata`, where it is not null, gets the texts of "__metadata__".
std::vector<StoredTensor> read_safetensors_header(const core::ReadableFile& file,
                                                  std::map<std::string, std::string>* metadata = nullptr);

// One tensor to write. `values` has the product of `shape` elements.
struct FloatTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};

// Writes float32 tensors in the order given, all or nothing. Metadata: texts by name, as {"format": "pt"} that others
// want to see. Throws kInvalidArgument for a name that comes twice or a count that does not fit its shape.
void write_safetensors(const std::string& path, std::span<const FloatTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::formats
