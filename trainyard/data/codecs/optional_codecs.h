// Decoders of the formats that are built in where their libraries are: BMP by stb_image (files with a palette here),
// GIF by giflib, TIFF by libtiff, WebP by libwebp. All give RGB pixels. GIF and WebP read the first frame of an
// animation, TIFF the first page.
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

// Returns the size of the screen, enlarged where the first frame reaches beyond it, or kCorruptData when there is no
// frame.
core::Result<ImageSize> read_gif_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the first frame, or `crop` of it, as Pillow's convert("RGB") does. Transparent pixels have their palette's
// colour; pixels around a frame that is smaller than the screen have the transparent colour, or the palette's first
// when there is none. GIFs have no orientation. Returns kCorruptData where the file is no GIF or is truncated, is
// larger than the limits, or the crop is not inside.
core::Result<Image> decode_gif(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                               const DecodeOptions& options = {});

// Returns the size that the first page's tags say, with `exif_orientation` that of the turned image, or kCorruptData
// when there are none.
core::Result<ImageSize> read_tiff_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Returns the first page's tag Orientation, 1 to 8; 1 where the file is damaged.
int read_tiff_orientation(std::span<const std::byte> bytes);

// Decodes the image, or `crop` of it, rotated by its tag Orientation when options.exif_orientation is set. Reads 1 to
// 16 bits a sample; gray, RGB, palette, CMYK, YCbCr; strips or tiles; plain, PackBits, LZW, Deflate, Zstandard, JPEG or
// fax. 16 bits become 8. Alpha is dropped; colours that were multiplied by it are divided again. Returns kCorruptData
// where the file is no TIFF, of another kind or truncated, is larger than the limits, or the crop is not inside.
core::Result<Image> decode_tiff(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

// Returns the size that the header says, with `exif_orientation` that of the turned image, or kCorruptData when there
// is none.
core::Result<ImageSize> read_webp_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Returns the orientation in the EXIF data, 1 to 8; 1 where there is none or the file is damaged.
int read_webp_orientation(std::span<const std::byte> bytes);

// Decodes the image, or `crop` of it, rotated by its EXIF data when options.exif_orientation is set. An alpha channel
// is dropped, as Pillow's convert("RGB") does. Around a first frame that is smaller than its animation, pixels are
// black. Returns kCorruptData where the file is no WebP or is truncated, is larger than the limits, or the crop is not
// inside.
core::Result<Image> decode_webp(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

}  // namespace trainyard::data
