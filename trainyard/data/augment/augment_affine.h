// Shears, translates and rotates images: each output pixel looks up its position in the input.
#pragma once

#include "trainyard/data/augment/augment_ops.h"

namespace trainyard::data {

// Maps the position of an output pixel to a position in the input. Both are relative to the image's centre, in pixels:
// (x, y) becomes (xx * x + xy * y + x0, yx * x + yy * y + y0).
struct AffineMap {
  float xx = 1, xy = 0, x0 = 0;
  float yx = 0, yy = 1, y0 = 0;

  // Shears along the rows: each row takes its pixels from `slope` columns further right than the row above it does.
  static AffineMap shear_x(float slope, int height);
  // Shears along the columns: each column takes its pixels from `slope` rows further down than the one to its left
  // does.
  static AffineMap shear_y(float slope, int width);
  // Moves the image to the right and down by whole pixels.
  static AffineMap translation(float right, float down);
  // Rotates counter-clockwise about the centre.
  static AffineMap rotation(float degrees);
};

// Transforms the image in place. A position between pixels takes the nearest pixel (torch's grid_sample: the even one
// of two) or, with bilinear sampling, the mean of its neighbours by distance, rounded. A position of which the part c
// has neighbours and the rest is outside gets, as torchvision computes it, their sum without a fill (0, 0, 0), and with
// one c * sum + (1 - c) * fill.
void transform_affine(const AffineMap& map, const AugmentOptions& options, PlanarImage& image);

}  // namespace trainyard::data
