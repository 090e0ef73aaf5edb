// What the tests of image operations share.
#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/data/augment/augment_ops.h"

namespace trainyard::data {

// Returns the image of tools/golden/augment.py and pillow_ops.py.
inline PlanarImage golden_image(int height, int width) {
  PlanarImage image{.height = height, .width = width};
  uint32_t state = 1;
  for (int64_t i = 0; i < 3 * image.plane(); ++i) {
    state = 1664525 * state + 1013904223;
    image.pixels.push_back(static_cast<uint8_t>(30 + (state >> 24) * 190 / 256));
  }
  return image;
}

// Returns the operation of this name; fails the test where there is none.
inline AugmentOp op_named(const std::string& name) {
  for (int i = 0; i < kAugmentOps; ++i) {
    if (augment_op_name(static_cast<AugmentOp>(i)) == name) return static_cast<AugmentOp>(i);
  }
  ADD_FAILURE() << "no operation " << name;
  return AugmentOp::kIdentity;
}

}  // namespace trainyard::data
