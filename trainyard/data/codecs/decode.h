// Image files to pixels. What a file is, its first bytes say, not its name.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// kCorruptData: empty, of no known format, or a broken header; kUnsupported: a format that this build cannot read.
core::Result<ImageSize> read_image_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// The image, or `crop` of it: see decode_jpeg and its fellows (image_formats.h).
core::Result<Image> decode_image(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                 const DecodeOptions& options = {});

}  // namespace trainyard::data
