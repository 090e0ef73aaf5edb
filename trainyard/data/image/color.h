// Random changes of colour, as TensorFlow's image operations define them. All work in place on float [3, height, width]
// planes with values around [0, 1].
#pragma once

#include <cstdint>

#include "trainyard/core/random/random.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

struct ColorPlanes {
  float* red = nullptr;
  float* green = nullptr;
  float* blue = nullptr;
  int64_t count = 0;  // pixels of a plane

  // Returns the planes of a contiguous [3, height, width] image.
  [[nodiscard]] static ColorPlanes of(float* image, int64_t pixels) {
    return {image, image + pixels, image + 2 * pixels, pixels};
  }
};

// Computes x + delta.
void adjust_brightness(ColorPlanes image, float delta);
// Computes (x - mean) * factor + mean, with the mean of each channel over the image.
void adjust_contrast(ColorPlanes image, float factor);
// Multiplies the saturation (in HSV) by `factor`, and clips it to [0, 1].
void adjust_saturation(ColorPlanes image, float factor);
// Turns the hue (in HSV) by `delta` of the circle.
void adjust_hue(ColorPlanes image, float delta);
// Turns the chroma (in YIQ, NTSC's) by `angle` radians and scales it by `factor`: one 3x3 matrix.
void adjust_hue_saturation_in_yiq(ColorPlanes image, float angle, float factor);

struct ColorDistortion {
  bool in_yiq = true;
  bool contrast_last = true;  // else contrast comes before saturation and hue
};

// Draws a brightness of up to +-32/255, a saturation and a contrast in [0.5, 1.5), and a hue of up to +-0.2, in the
// order of their use.
ColorDraw draw_color(const ColorDistortion& options, core::RandomStream& random);
// Changes the colours by a draw, then clips them to [0, 1].
void apply_color(ColorPlanes image, const ColorDistortion& options, const ColorDraw& draw);
// Draws a ColorDraw and applies it.
void distort_color(ColorPlanes image, const ColorDistortion& options, core::RandomStream& random);

}  // namespace trainyard::data
