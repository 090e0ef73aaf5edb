// Random erasing (Zhong, Zheng, Kang, Li, Yang, "Random erasing data augmentation", 2020), as torchvision and timm do
// it: a part of the normalized image is overwritten.
#pragma once

#include <optional>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Draws the part to overwrite, which is smaller than the image in both sides. Returns nothing with probability 1 -
// options.probability, or when ten draws do not fit.
std::optional<CropWindow> draw_erased(const RandomErasingOptions& options, ImageSize image, core::RandomStream& random);

// Writes zeros into a window of `image`, float [3, size.height, size.width].
void write_zeros(const CropWindow& window, ImageSize size, float* image);

// Overwrites a drawn part of `image`, float [3, size.height, size.width]. Changes nothing when no part is drawn.
void erase(const RandomErasingOptions& options, ImageSize size, core::RandomStream& random, float* image);

}  // namespace trainyard::data
