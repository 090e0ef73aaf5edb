// Decodes BMP files to RGB pixels: those with a palette here, all others by stb_image.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size that the header says, or kCorruptData when there is none.
core::Result<ImageSize> read_bmp_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the image, or `crop` of it: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits, stored from the bottom up or
// from the top down. A colour that the palette lacks is black. An alpha channel is dropped. BMPs have no orientation.
// Returns kCorruptData where the file is no BMP, is run-length coded or truncated, is larger than the limits, or the
// crop is not inside.
core::Result<Image> decode_bmp(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                               const DecodeOptions& options = {});

}  // namespace trainyard::data
