// Shears, translations and rotations of an image: each output pixel looks up its place in the input.
#pragma once

#include "trainyard/data/augment/augment_ops.h"

namespace trainyard::data {

// Input place of an output pixel, both counted from the image's centre, in pixels:
// (xx * x + xy * y + x0, yx * x + yy * y + y0).
struct AffineMap {
  float xx = 1, xy = 0, x0 = 0;
  float yx = 0, yy = 1, y0 = 0;

  // What lies `slope` columns further right for each row below the first comes to the column, and rows likewise.
  static AffineMap shear_x(float slope, int height);
  static AffineMap shear_y(float slope, int width);
  // Moves the image by whole pixels to the right and down.
  static AffineMap translation(float right, float down);
  // Counter-clockwise about the centre.
  static AffineMap rotation(float degrees);
};

// In place. A place between pixels is the nearest one (torch's grid_sample: the even one of two), or their mean by
// distance with options.bilinear, rounded.
void transform_affine(const AffineMap& map, const AugmentOptions& options, PlanarImage& image);

}  // namespace trainyard::data
