#include "trainyard/data/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace trainyard::data {
namespace {

// A colour as hue (in sixths of the circle, [0, 6)), smallest and largest channel.
struct HueRange {
  float hue, low, high;
};

HueRange to_hue_range(float red, float green, float blue) {
  const float high = std::max({red, green, blue});
  const float low = std::min({red, green, blue});
  const float range = high - low;
  if (range <= 0) return {0, low, high};
  float hue = 0;
  if (red == high) {
    hue = (green - blue) / range;
  } else if (green == high) {
    hue = (blue - red) / range + 2;
  } else {
    hue = (red - green) / range + 4;
  }
  return {hue < 0 ? hue + 6 : hue, low, high};
}

// The channel that peaks at `peak` sixths of the circle: high within one sixth of it, low beyond two, linear between.
float channel(const HueRange& color, float peak) {
  float distance = std::abs(color.hue - peak);
  if (distance > 3) distance = 6 - distance;
  return color.low + (color.high - color.low) * std::clamp(2 - distance, 0.0F, 1.0F);
}

// Applies change(HueRange&) to every pixel.
template <typename Change>
void in_hue_range(ColorPlanes image, Change change) {
  for (int64_t i = 0; i < image.count; ++i) {
    HueRange color = to_hue_range(image.red[i], image.green[i], image.blue[i]);
    change(color);
    image.red[i] = channel(color, 0);
    image.green[i] = channel(color, 2);
    image.blue[i] = channel(color, 4);
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
    for (int64_t i = 0; i < image.count; ++i) sum += plane[i];
    const float mean = static_cast<float>(sum / static_cast<double>(image.count));
    for (int64_t i = 0; i < image.count; ++i) plane[i] = (plane[i] - mean) * factor + mean;
  }
}

void adjust_saturation(ColorPlanes image, float factor) {
  in_hue_range(image, [factor](HueRange& color) {
    if (color.high <= 0) {  // no saturation is defined: 0, gray
      color.low = color.high;
      return;
    }
    const float saturation = (color.high - color.low) / color.high;
    color.low = color.high * (1 - std::clamp(saturation * factor, 0.0F, 1.0F));
  });
}

void adjust_hue(ColorPlanes image, float delta) {
  const float turn = 6 * (delta - std::floor(delta));
  in_hue_range(image, [turn](HueRange& color) {
    color.hue += turn;
    if (color.hue >= 6) color.hue -= 6;
  });
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

void distort_color(ColorPlanes image, const ColorDistortion& options, core::RandomStream& random) {
  const auto contrast = [&] { adjust_contrast(image, random.uniform(0.5F, 1.5F)); };
  adjust_brightness(image, random.uniform(-32.0F / 255, 32.0F / 255));
  if (!options.contrast_last) contrast();
  const float saturation = random.uniform(0.5F, 1.5F);
  const float hue = random.uniform(-0.2F, 0.2F);
  if (options.in_yiq) {
    adjust_hue_saturation_in_yiq(image, hue * std::numbers::pi_v<float>, saturation);
  } else {
    adjust_saturation(image, saturation);
    adjust_hue(image, hue);
  }
  if (options.contrast_last) contrast();
  for (float* plane : {image.red, image.green, image.blue}) {
    for (int64_t i = 0; i < image.count; ++i) plane[i] = std::clamp(plane[i], 0.0F, 1.0F);
  }
}

}  // namespace trainyard::data
