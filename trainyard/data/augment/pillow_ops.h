// Operations on images as Pillow computes them, which timm's policies use: ImageOps, ImageEnhance and Image.transform
// of Pillow 9 to 13. The pixels are Pillow's, bit for bit.
#pragma once

#include "trainyard/data/augment/augment_ops.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Applies one operation in place. `step.magnitude` is
//
//   kShearX, kShearY            columns a row, or rows a column, about the top left corner
//   kTranslateX, kTranslateY    part of the side that the image moves to the left, or up
//   kRotate                     degrees counter-clockwise about the centre, in (-90, 90)
//   kBrightness, kColor, kContrast, kSharpness    the factor of ImageEnhance: 1 changes nothing
//   kPosterize                  bits that are kept: 8 or more change nothing, 0 makes the image black as in Pillow 12
//   kSolarize                   values from it on are inverted
//   kSolarizeAdd                is added to values below 128
//
// and unused for the others. step.sampling, kBilinear or kBicubic, counts for shears, translations and rotations, which
// fill what lies outside of the image with `fill`, rounded to whole values. The image must not be empty.
void apply_pillow(const AugmentStep& step, const Rgb& fill, PlanarImage& image);

}  // namespace trainyard::data
