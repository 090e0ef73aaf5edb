// Resizing as TensorFlow 1 does it: corners not aligned, no half-pixel centres, no antialias. Output pixel i samples
// the input at i * scale, scale = input size / output size in single precision.
//
//   nearest   the pixel at floor(i * scale)
//   bilinear  between floor(i * scale) and the next, linear
//   bicubic   four pixels from floor(i * scale) - 1 on, Keys' kernel with a = -0.75 read from a table of 1,024 steps
//             (Keys, "Cubic convolution interpolation for digital image processing", 1981); pixels outside repeat the
//             edge
//   area      the mean over [i * scale, (i + 1) * scale), pixels in part by their part
#pragma once

#include <string_view>

#include "trainyard/data/image.h"

namespace trainyard::data {

enum class ResizeMethod { kNearest, kBilinear, kBicubic, kArea };

// "nearest", "bilinear", "bicubic", "area". Throws kInvalidArgument with the known names.
ResizeMethod resize_method(std::string_view name);

// Resizes to `size`, of which only `window` is computed. mirror: the image is mirrored left to right before that.
// `out`: float [3, window.height, window.width], values in the pixels' units. The image must not be empty and the
// window inside `size`.
void resize(const Image& image, ImageSize size, const CropWindow& window, ResizeMethod method, bool mirror, float* out);

}  // namespace trainyard::data
