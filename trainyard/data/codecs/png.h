// Decodes PNG files to RGB pixels with libspng. ImageNet and other data sets contain PNGs that are named as JPEGs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size that the header says, or kCorruptData when there is none.
core::Result<ImageSize> read_png_size(std::span<const std::byte> bytes);

// Decodes the image, or `crop` of it. Every colour type and depth becomes 8-bit RGB; an alpha channel is dropped.
// Returns kCorruptData where the file is no PNG or is truncated, a checksum differs, it is larger than the limits, or
// the crop is not inside.
core::Result<Image> decode_png(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                               const DecodeLimits& limits = {});

}  // namespace trainyard::data
