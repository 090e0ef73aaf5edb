// The common part of decoders that decode the whole image first, then rotate and crop it.
#pragma once

#include <functional>
#include <optional>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// An image as its header describes it.
struct WholeImage {
  ImageSize stored;
  int orientation = 1;  // rotation of the result (image/orientation.h)
};

// Checks the size and the window, allocates, lets `fill` write [height, width, 3] of the stored image, rotates and
// crops it. Returns kCorruptData where the image is larger than the limits or the window is not inside, and what `fill`
// returns.
core::Result<Image> decode_whole(const WholeImage& image, const std::optional<CropWindow>& crop,
                                 const DecodeLimits& limits,
                                 const std::function<core::Result<void>(uint8_t* pixels)>& fill);

}  // namespace trainyard::data
