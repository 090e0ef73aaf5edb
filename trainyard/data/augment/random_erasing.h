// Random erasing (Zhong, Zheng, Kang, Li, Yang, "Random erasing data augmentation", 2020), as torchvision does it: a
// part of the normalized image is overwritten.
#pragma once

#include <optional>

#include "trainyard/core/random/random.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

struct RandomErasingOptions {
  float probability = 0;
  float min_area = 0.02F, max_area = 0.33F;                // part of the image
  float min_aspect_ratio = 0.3F, max_aspect_ratio = 3.3F;  // height / width
  bool noise = false;                                      // normal numbers instead of zeros
  void validate() const;                                   // throws kInvalidArgument
};

// The part to overwrite, smaller than the image in both sides; none with 1 - probability, or when ten draws do not fit.
std::optional<CropWindow> draw_erased(const RandomErasingOptions& options, ImageSize image, core::RandomStream& random);

// `image`: float [3, size.height, size.width].
void erase(const RandomErasingOptions& options, ImageSize size, core::RandomStream& random, float* image);

}  // namespace trainyard::data
