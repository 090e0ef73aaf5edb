// Encodes RGB pixels as PNG files with libspng.
#pragma once

#include <cstddef>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Encodes 8-bit RGB without loss. Throws kInvalidArgument for an empty image, kNoSpace.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
