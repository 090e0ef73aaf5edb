// Decodes image files. The first bytes of a file decide its format, not its name.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size that the header says. Returns kCorruptData when the file is empty, of no known format, or has a
// broken header, and kUnsupported for a format that this build cannot read.
core::Result<ImageSize> read_image_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Returns the orientation in the image's EXIF data, 1 to 8 (orientation.h). Returns 1, as stored, where there is none
// or the header cannot be read.
int read_image_orientation(std::span<const std::byte> bytes);

// Decodes the image, or `crop` of it, as the decoders of the formats do (image_formats.h).
core::Result<Image> decode_image(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                 const DecodeOptions& options = {});

}  // namespace trainyard::data
