// TIFF files to RGB pixels: libtiff. Of several pages, the first.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Size from the first page's tags; of the turned image with exif_orientation. kCorruptData when there are none.
core::Result<ImageSize> read_tiff_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the image, or `crop` of it, turned by its tag Orientation where options.exif_orientation asks for it: 1 to 16
// bits a sample; gray, RGB, palette, CMYK, YCbCr; in strips or tiles; plain, PackBits, LZW, Deflate, Zstandard, JPEG or
// fax. 16 bits become 8. Alpha is dropped, colours that were multiplied by it are divided again. kCorruptData: no TIFF,
// another kind, truncated, larger than the limits, or the crop is not inside.
core::Result<Image> decode_tiff(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

}  // namespace trainyard::data
