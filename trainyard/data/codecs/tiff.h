// Decodes TIFF files to RGB pixels with libtiff. Reads the first page.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size that the first page's tags say, with `exif_orientation` that of the turned image, or kCorruptData
// when there are none.
core::Result<ImageSize> read_tiff_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the image, or `crop` of it, rotated by its tag Orientation when options.exif_orientation is set. Reads 1 to
// 16 bits a sample; gray, RGB, palette, CMYK, YCbCr; strips or tiles; plain, PackBits, LZW, Deflate, Zstandard, JPEG or
// fax. 16 bits become 8. Alpha is dropped; colours that were multiplied by it are divided again. Returns kCorruptData
// where the file is no TIFF, of another kind or truncated, is larger than the limits, or the crop is not inside.
core::Result<Image> decode_tiff(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

}  // namespace trainyard::data
