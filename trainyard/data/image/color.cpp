#include "trainyard/data/image/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace trainyard::data {
namespace {

// No branches here and below, so that loops over pixels run on eight of them at once.
inline float larger(float a, float b) {
  return a > b ? a : b;
}
inline float smaller(float a, float b) {
  return a < b ? a : b;
}

// Hue in sixths of the circle, [0, 6); 0 for gray.
inline float hue_of(float red, float green, float blue, float low, float high) {
  const float part = 1 / larger(high - low, 1e-30F);  // of gray it multiplies zeros
  const float from_red = (green - blue) * part;
  const float from_green = (blue - red) * part + 2;
  const float from_blue = (red - green) * part + 4;
  const float hue = red == high ? from_red : (green == high ? from_green : from_blue);
  return hue < 0 ? hue + 6 : hue;
}

// The channel that peaks at `peak` sixths of the circle: high within one sixth of it, low beyond two, linear between.
inline float channel(float hue, float low, float high, float peak) {
  const float distance = std::abs(hue - peak);
  const float shorter = smaller(distance, 6 - distance);
  return low + (high - low) * smaller(larger(2 - shorter, 0), 1);
}

// Each colour's hue becomes new_hue(hue), its smallest channel new_low(low, high).
template <typename NewHue, typename NewLow>
void in_hue_range(ColorPlanes image, NewHue new_hue, NewLow new_low) {
  float* __restrict red_plane = image.red;
  float* __restrict green_plane = image.green;
  float* __restrict blue_plane = image.blue;
  for (int64_t i = 0; i < image.count; ++i) {
    const float red = red_plane[i], green = green_plane[i], blue = blue_plane[i];
    const float high = larger(larger(red, green), blue);
    const float lowest = smaller(smaller(red, green), blue);
    const float hue = new_hue(hue_of(red, green, blue, lowest, high));
    const float low = new_low(lowest, high);
    red_plane[i] = channel(hue, low, high, 0);
    green_plane[i] = channel(hue, low, high, 2);
    blue_plane[i] = channel(hue, low, high, 4);
  }
}

using Matrix = std::array<std::array<float, 3>, 3>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result{};
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      for (int k = 0; k < 3; ++k) result[row][column] += a[row][k] * b[k][column];
    }
  }
  return result;
}

}  // namespace

void adjust_brightness(ColorPlanes image, float delta) {
  for (float* plane : {image.red, image.green, image.blue}) {
    for (int64_t i = 0; i < image.count; ++i) plane[i] += delta;
  }
}

void adjust_contrast(ColorPlanes image, float factor) {
  for (float* plane : {image.red, image.green, image.blue}) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < image.count; ++i) sum += plane[i];
    const float mean = static_cast<float>(sum / static_cast<double>(image.count));
    for (int64_t i = 0; i < image.count; ++i) plane[i] = (plane[i] - mean) * factor + mean;
  }
}

void adjust_saturation(ColorPlanes image, float factor) {
  in_hue_range(
      image, [](float hue) { return hue; },
      [factor](float low, float high) {
        const float saturation = (high - low) / larger(high, 1e-30F);
        const float changed = high * (1 - smaller(larger(saturation * factor, 0), 1));
        return high > 0 ? changed : high;  // else none is defined: 0, gray
      });
}

void adjust_hue(ColorPlanes image, float delta) {
  const float turn = 6 * (delta - std::floor(delta));
  in_hue_range(
      image, [turn](float hue) { return hue + turn >= 6 ? hue + turn - 6 : hue + turn; },
      [](float low, float) { return low; });
}

void adjust_hue_saturation_in_yiq(ColorPlanes image, float angle, float factor) {
  // The NTSC matrix and its inverse, rounded as TensorFlow's operation has them.
  static constexpr Matrix kToYiq = {{{0.299F, 0.587F, 0.114F}, {0.596F, -0.274F, -0.322F}, {0.211F, -0.523F, 0.312F}}};
  static constexpr Matrix kFromYiq = {
      {{1, 0.95617069F, 0.62143257F}, {1, -0.2726886F, -0.64681324F}, {1, -1.103744F, 1.70062309F}}};
  const float u = factor * std::cos(angle);
  const float w = factor * std::sin(angle);
  const Matrix turn = {{{1, 0, 0}, {0, u, -w}, {0, w, u}}};
  const Matrix m = product(kFromYiq, product(turn, kToYiq));
  for (int64_t i = 0; i < image.count; ++i) {
    const float red = image.red[i], green = image.green[i], blue = image.blue[i];
    image.red[i] = m[0][0] * red + m[0][1] * green + m[0][2] * blue;
    image.green[i] = m[1][0] * red + m[1][1] * green + m[1][2] * blue;
    image.blue[i] = m[2][0] * red + m[2][1] * green + m[2][2] * blue;
  }
}

ColorDraw draw_color(const ColorDistortion& options, core::RandomStream& random) {
  const auto factor = [&] { return random.uniform(0.5F, 1.5F); };
  ColorDraw draw;
  draw.brightness = random.uniform(-32.0F / 255, 32.0F / 255);
  if (!options.contrast_last) draw.contrast = factor();
  draw.saturation = factor();
  draw.hue = random.uniform(-0.2F, 0.2F);
  if (options.contrast_last) draw.contrast = factor();
  return draw;
}

void distort_color(ColorPlanes image, const ColorDistortion& options, core::RandomStream& random) {
  apply_color(image, options, draw_color(options, random));
}

void apply_color(ColorPlanes image, const ColorDistortion& options, const ColorDraw& draw) {
  adjust_brightness(image, draw.brightness);
  if (!options.contrast_last) adjust_contrast(image, draw.contrast);
  if (options.in_yiq) {
    adjust_hue_saturation_in_yiq(image, draw.hue * std::numbers::pi_v<float>, draw.saturation);
  } else {
    adjust_saturation(image, draw.saturation);
    adjust_hue(image, draw.hue);
  }
  if (options.contrast_last) adjust_contrast(image, draw.contrast);
  for (float* plane : {image.red, image.green, image.blue}) {
    for (int64_t i = 0; i < image.count; ++i) plane[i] = std::clamp(plane[i], 0.0F, 1.0F);
  }
}

}  // namespace trainyard::data
