// RGB pixels to PNG files: libspng.
#pragma once

#include <cstddef>
#include <vector>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

// 8-bit RGB, without loss. The image must not be empty (kInvalidArgument). Throws kNoSpace.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace trainyard::data
