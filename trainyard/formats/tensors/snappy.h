// Decompresses Snappy's raw format, in which tables of TensorFlow and LevelDB may keep their blocks
// (docs/formats/tensorflow_checkpoint.md).
#pragma once

#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"

namespace trainyard::formats {

// Returns the decompressed bytes, or kCorruptData with the offset at which the input is malformed. Allocates at most 22
// times the input's size, which is more than the format can express.
[[nodiscard]] core::Result<std::string> decompress_snappy(std::string_view compressed);

}  // namespace trainyard::formats
