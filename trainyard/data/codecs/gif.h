// Decodes GIF files to RGB pixels with giflib. Reads the first frame of an animation.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size of the screen, enlarged where the first frame reaches beyond it, or kCorruptData when there is no
// frame.
core::Result<ImageSize> read_gif_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the first frame, or `crop` of it, as Pillow's convert("RGB") does. Transparent pixels have their palette's
// colour; pixels around a frame that is smaller than the screen have the transparent colour, or the palette's first
// when there is none. GIFs have no orientation. Returns kCorruptData where the file is no GIF or is truncated, is
// larger than the limits, or the crop is not inside.
core::Result<Image> decode_gif(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                               const DecodeOptions& options = {});

}  // namespace trainyard::data
