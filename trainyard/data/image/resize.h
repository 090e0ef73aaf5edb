// Resizing as TensorFlow does it. With scale = input size / output size in single precision, output pixel i samples the
// input at i * scale (TensorFlow 1), or at (i + 0.5) * scale - 0.5 with half_pixel_centers (TensorFlow 2, torchvision):
//
//   nearest   the pixel at floor(i * scale), or floor((i + 0.5) * scale)
//   bilinear  between the pixel below the place and the next, linear; the edge repeats
//   bicubic   the four pixels around the place, Keys' kernel from a table of 1,024 steps (Keys, "Cubic convolution
//             interpolation for digital image processing", 1981): a = -0.75 and pixels outside repeat the edge; with
//             half_pixel_centers a = -0.5 and pixels outside do not count
//   area      the mean over [i * scale, (i + 1) * scale), pixels in part by their part, in both conventions
//
// With antialias, bilinear is a triangle and bicubic Keys' kernel (a = -0.5) that reaches 1 or 2 times max(scale, 1)
// input pixels to each side of the position, with weights that sum to 1 over the pixels inside: with half_pixel_centers
// TensorFlow 2's antialias and Pillow's. Nearest and area have no such form.
//
// DALI and OpenCV repeat the edge instead of leaving out pixels outside of the image, and OpenCV's bicubic has a =
// -0.75 with half-pixel centres, too (ResizeOptions::repeat_edges).
#pragma once

#include <array>
#include <string_view>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

enum class ResizeMethod { kNearest, kBilinear, kBicubic, kArea };

// Returns the method called "nearest", "bilinear", "bicubic" or "area". Throws kInvalidArgument with the known names.
[[nodiscard]] ResizeMethod resize_method(std::string_view name);

struct ResizeOptions {
  ResizeMethod method = ResizeMethod::kBilinear;
  bool antialias = false;
  bool half_pixel_centers = false;
  bool mirror = false;  // the image is mirrored left to right before it is resized
  // Each channel's results are value * scale + shift.
  std::array<float, 3> scale = {1, 1, 1};
  std::array<float, 3> shift = {0, 0, 0};
  // true: pixels outside of the image always repeat its edge, and bicubic is Keys' kernel with a = -0.75.
  bool repeat_edges = false;
  bool clip = false;  // values are cut off at 0 and 255 before scale and shift
  // Distance in the image, in pixels, between neighbouring rows, and columns, of the result, around the image's centre.
  // 0: the image's side divided by the result's.
  float row_step = 0, column_step = 0;
};

// Resizes to `size`, but computes only `window` of the result. `out` is float [3, window.height, window.width], with
// values in the pixels' units before scale and shift. The image must not be empty, and the window must be inside
// `size`.
void resize(const ImageView& image, ImageSize size, const CropWindow& window, const ResizeOptions& options, float* out);

}  // namespace trainyard::data
