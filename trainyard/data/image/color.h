// Random changes of colour, as TensorFlow's image operations define them. All work in place on float [3, height, width]
// planes with values around [0, 1].
#pragma once

#include <cstdint>

#include "trainyard/core/random/random.h"

namespace trainyard::data {

struct ColorPlanes {
  float* red;
  float* green;
  float* blue;
  int64_t count;  // pixels of a plane

  // The planes of a contiguous [3, height, width] image.
  static ColorPlanes of(float* image, int64_t pixels) { return {image, image + pixels, image + 2 * pixels, pixels}; }
};

// x + delta.
void adjust_brightness(ColorPlanes image, float delta);
// (x - mean) * factor + mean, with the mean of each channel over the image.
void adjust_contrast(ColorPlanes image, float factor);
// In HSV: saturation times `factor`, clipped to [0, 1].
void adjust_saturation(ColorPlanes image, float factor);
// In HSV: hue turned by `delta` of the circle.
void adjust_hue(ColorPlanes image, float delta);
// In YIQ (NTSC): chroma turned by `angle` radians and scaled by `factor`: one 3x3 matrix.
void adjust_hue_saturation_in_yiq(ColorPlanes image, float angle, float factor);

struct ColorDistortion {
  bool in_yiq = true;
  bool contrast_last = true;  // else contrast comes before saturation and hue
};

// Brightness +-32/255, saturation and contrast in [0.5, 1.5), hue +-0.2 of the circle (HSV) or +-0.2 pi (YIQ), then
// clips to [0, 1]. Draws from `random` in the order of use.
void distort_color(ColorPlanes image, const ColorDistortion& options, core::RandomStream& random);

}  // namespace trainyard::data
