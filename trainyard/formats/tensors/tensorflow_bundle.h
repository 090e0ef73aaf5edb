// The messages of a TensorFlow checkpoint's index: its header, and an entry for each tensor or part of one
// (tensorflow/core/protobuf/tensor_bundle.proto).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/tensor_file.h"

namespace trainyard::formats {

struct BundleHeader {
  int64_t shards = 0;
  bool big_endian = false;
};

// The part [start, start + length) of one dimension; a length of -1 is the whole dimension.
struct BundleExtent {
  int64_t start = 0, length = -1;
};
using BundleSlice = std::vector<BundleExtent>;  // one for each dimension

struct BundleEntry {
  int64_t type = 0;  // tensorflow/core/framework/types.proto
  std::vector<int64_t> shape{};
  int64_t shard = 0, offset = 0, size = 0;  // in bytes
  uint32_t checksum = 0;                    // masked CRC32C of the numbers
  std::vector<BundleSlice> slices{};        // of a partitioned variable, whose parts have entries of their own
};

// Returns kCorruptData for bytes that are not such a message, for versions that this reader does not know, and for
// shapes of unknown rank or of more than kMaxDimensions dimensions.
[[nodiscard]] core::Result<BundleHeader> parse_bundle_header(std::string_view bytes);
[[nodiscard]] core::Result<BundleEntry> parse_bundle_entry(std::string_view bytes);

// Returns the key under which the index has a part of a partitioned variable, in TensorFlow's ordered code.
[[nodiscard]] std::string bundle_slice_key(std::string_view name, const BundleSlice& slice);

// Returns the type for TensorFlow's number; nothing for texts, complex numbers and others that are not read.
[[nodiscard]] std::optional<TensorType> tensor_type_of_tensorflow(int64_t type);
// Returns TensorFlow's name: "string"; "type 99" for a number that it does not have.
[[nodiscard]] std::string tensorflow_type_name(int64_t type);

}  // namespace trainyard::formats
