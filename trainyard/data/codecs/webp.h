// Decodes WebP files to RGB pixels with libwebp. Reads the first frame of an animation.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size that the header says, with `exif_orientation` that of the turned image, or kCorruptData when there
// is none.
core::Result<ImageSize> read_webp_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the image, or `crop` of it, rotated by its EXIF data when options.exif_orientation is set. An alpha channel
// is dropped, as Pillow's convert("RGB") does. Around a first frame that is smaller than its animation, pixels are
// black. Returns kCorruptData where the file is no WebP or is truncated, is larger than the limits, or the crop is not
// inside.
core::Result<Image> decode_webp(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

}  // namespace trainyard::data
