// GIF files to RGB pixels: giflib. Of an animation, the first frame.
#pragma once

#include <optional>
#include <span>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Size of the screen, larger where the first frame reaches beyond it. kCorruptData when there is no frame.
core::Result<ImageSize> read_gif_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the first frame, or `crop` of it, as Pillow's convert("RGB") does: transparent pixels have their palette's
// colour; around a frame that is smaller than the screen lies the transparent colour, else the palette's first. GIFs
// have no orientation. kCorruptData: no GIF, truncated, larger than the limits, or the crop is not inside.
core::Result<Image> decode_gif(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                               const DecodeOptions& options = {});

}  // namespace trainyard::data
