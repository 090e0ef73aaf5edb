// Parses the JSON header of a safetensors file (docs/formats/safetensors.md). It is parsed value by value, because a
// tree would take thirty times the size of a hostile text. For safetensors.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/tensor_file.h"

namespace trainyard::formats {

struct SafetensorsEntry {
  StoredTensor tensor;          // without its offset in the file
  uint64_t begin = 0, end = 0;  // bytes in the data
};

// Returns the entries in the order of the text; their offsets are not checked. Throws kCorruptData naming the file and
// the tensor. `metadata`, if not null, gets the texts of "__metadata__"; other entries there are skipped.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, const std::string& path,
                                                       std::map<std::string, std::string>* metadata = nullptr);

// Returns the format's name of a type, "F32", or an empty text for a type that the format does not have.
std::string_view safetensors_type_name(TensorType type);

// Returns a kCorruptData error with a remedy.
core::Error safetensors_error(const std::string& path, std::string_view tensor, std::string problem,
                              std::string expected = "", std::string actual = "");

}  // namespace trainyard::formats
