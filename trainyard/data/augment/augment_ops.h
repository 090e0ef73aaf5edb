// The operations on images from which RandAugment and TrivialAugment choose, inversion and SolarizeAdd, as torchvision
// defines them for uint8 images (torchvision.transforms.functional). The pixels are torchvision's, except for rounding
// by one level.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// An image as three planes. `pixels` is uint8 [3, height, width], RGB.
struct PlanarImage {
  int height = 0, width = 0;
  PooledVector<uint8_t> pixels{};

  int64_t plane() const { return int64_t{height} * width; }
};

inline constexpr int kAugmentOps = 16;

// Applies one operation in place. The image must not be empty.
void apply(const AugmentStep& step, const AugmentOptions& options, PlanarImage& image);

}  // namespace trainyard::data
