// The JSON in front of a safetensors file's numbers (docs/formats/safetensors.md), read value by value: a tree of it
// would be thirty times a hostile text. For safetensors.cpp.
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
  uint64_t begin = 0, end = 0;  // in the data
};

// In the order of the text; nothing about places has been checked. Throws kCorruptData naming the file and the tensor.
// `metadata`, where it is not null, gets the texts of "__metadata__"; what is no text there is passed over.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view text, const std::string& path,
                                                       std::map<std::string, std::string>* metadata = nullptr);

// kCorruptData with what to do.
core::Error safetensors_error(const std::string& path, std::string_view tensor, std::string problem,
                              std::string expected = "", std::string actual = "");

}  // namespace trainyard::formats
