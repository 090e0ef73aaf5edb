#include "trainyard/data/augment/pillow_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include "trainyard/data/augment/pixel_table.h"

namespace trainyard::data {
namespace {

// The position of a pixel (x, y), counted from the corner of the image, in the input: (xx * x + xy * y + x0, ...).
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;
};

uint8_t clipped(double value) {
  if (value <= 0) return 0;
  return value >= 255 ? 255 : static_cast<uint8_t>(value);
}

double cubic(double v1, double v2, double v3, double v4, double d) {
  const double p2 = -v1 + v3;
  const double p3 = 2 * (v1 - v2) + v3 - v4;
  const double p4 = -v1 + v2 - v3 + v4;
  return v2 + d * (p2 + d * (p3 + d * p4));
}

double linear(double a, double b, double d) {
  return a + (b - a) * d;
}

// One channel. Rows and columns beyond the edge are the edge's.
class Channel {
 public:
  Channel(const uint8_t* pixels, int height, int width) : pixels_(pixels), height_(height), width_(width) {}

  // `x` and `y`: the pixel above and left of the place, dx and dy behind it.
  double bilinear(int x, int y, double dx, double dy) const {
    const auto row_at = [&](int row) {
      const uint8_t* in = row_of(row);
      return linear(in[column(x)], in[column(x + 1)], dx);
    };
    return linear(row_at(y), row_at(y + 1), dy);
  }

  double bicubic(int x, int y, double dx, double dy) const {
    const auto row_at = [&](int row) {
      const uint8_t* in = row_of(row);
      return cubic(in[column(x - 1)], in[column(x)], in[column(x + 1)], in[column(x + 2)], dx);
    };
    return cubic(row_at(y - 1), row_at(y), row_at(y + 1), row_at(y + 2), dy);
  }

 private:
  const uint8_t* row_of(int row) const { return pixels_ + int64_t{std::clamp(row, 0, height_ - 1)} * width_; }
  int column(int x) const { return std::clamp(x, 0, width_ - 1); }

  const uint8_t* pixels_;
  int height_, width_;
};

void transform(const Affine& map, AugmentSampling sampling, const Rgb& fill, PlanarImage& image) {
  const PlanarImage source = image;
  const int64_t plane = image.plane();
  std::array<uint8_t, 3> outside{};
  for (size_t c = 0; c < 3; ++c) outside[c] = clipped(std::nearbyint(fill[c]));
  const std::array<Channel, 3> channels = {Channel(source.pixels.data(), source.height, source.width),
                                           Channel(source.pixels.data() + plane, source.height, source.width),
                                           Channel(source.pixels.data() + 2 * plane, source.height, source.width)};
  for (int y = 0, at = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x, ++at) {
      const double xin = x + 0.5, yin = y + 0.5;
      double column = map.xx * xin + map.xy * yin + map.x0;
      double row = map.yx * xin + map.yy * yin + map.y0;
      const bool inside = column >= 0 && column < image.width && row >= 0 && row < image.height;
      column -= 0.5;
      row -= 0.5;
      const double left = std::floor(column), top = std::floor(row);
      for (size_t c = 0; c < 3; ++c) {
        uint8_t& out = image.pixels[static_cast<int64_t>(c) * plane + at];
        if (!inside) {
          out = outside[c];
        } else if (sampling == AugmentSampling::kBilinear) {
          out = clipped(channels[c].bilinear(static_cast<int>(left), static_cast<int>(top), column - left, row - top));
        } else {
          out = clipped(channels[c].bicubic(static_cast<int>(left), static_cast<int>(top), column - left, row - top));
        }
      }
    }
  }
}

// Python's round(value, 15).
double rounded_to_15_digits(double value) {
  return std::strtod(fmt::format("{:.15f}", value).c_str(), nullptr);
}

Affine rotation(double degrees, int height, int width) {
  double turned = std::fmod(degrees, 360.0);  // Python's remainder has the sign of the divisor
  if (turned < 0) turned += 360.0;
  const double angle = -(turned * (std::numbers::pi / 180));
  const double cosine = rounded_to_15_digits(std::cos(angle)), sine = rounded_to_15_digits(std::sin(angle));
  const double negative_sine = rounded_to_15_digits(-std::sin(angle));
  const double x = width / 2.0, y = height / 2.0;
  Affine map{.xx = cosine, .xy = sine, .yx = negative_sine, .yy = cosine};
  map.x0 = cosine * -x + sine * -y + 0.0;
  map.y0 = negative_sine * -x + cosine * -y + 0.0;
  map.x0 += x;
  map.y0 += y;
  return map;
}

// Image.blend(): `pixel` at factor 1, `other` at factor 0.
uint8_t blend(int other, int pixel, float factor) {
  if (factor == 0) return static_cast<uint8_t>(other);
  if (factor == 1) return static_cast<uint8_t>(pixel);
  const float value = static_cast<float>(other) + factor * static_cast<float>(pixel - other);
  if (value <= 0) return 0;
  return value >= 255 ? 255 : static_cast<uint8_t>(value);
}

// ITU-R 601-2 luma, as convert("L") rounds it.
int gray_of(const PlanarImage& image, int64_t at) {
  const int64_t plane = image.plane();
  const uint8_t* pixels = image.pixels.data();
  return (pixels[at] * 19595 + pixels[plane + at] * 38470 + pixels[2 * plane + at] * 7471 + 0x8000) >> 16;
}

void blend_color(float factor, PlanarImage& image) {
  const int64_t plane = image.plane();
  for (int64_t i = 0; i < plane; ++i) {
    const int gray = gray_of(image, i);
    for (int c = 0; c < 3; ++c) {
      uint8_t& pixel = image.pixels[c * plane + i];
      pixel = blend(gray, pixel, factor);
    }
  }
}

void blend_contrast(float factor, PlanarImage& image) {
  const int64_t plane = image.plane();
  int64_t sum = 0;
  for (int64_t i = 0; i < plane; ++i) sum += gray_of(image, i);
  const int mean = static_cast<int>(std::lround(static_cast<double>(sum) / static_cast<double>(plane)));
  map_all(image, [&](int value) { return blend(mean, value, factor); });
}

void blend_sharpness(float factor, PlanarImage& image) {
  map_smoothed(image, [&](uint8_t value, int blurred) { return blend(blurred, value, factor); });
}

void auto_contrast(PlanarImage& image) {
  for (int c = 0; c < 3; ++c) {
    uint8_t* pixels = image.pixels.data() + c * image.plane();
    const auto [low, high] = std::minmax_element(pixels, pixels + image.plane());
    if (*high <= *low) continue;
    const double scale = 255.0 / (*high - *low), offset = -*low * scale;
    look_up(table_of([&](int value) { return clipped(value * scale + offset); }), pixels, image.plane());
  }
}

}  // namespace

void apply_pillow(const AugmentStep& step, const Rgb& fill, PlanarImage& image) {
  const double magnitude = step.magnitude;
  const auto factor = static_cast<float>(magnitude);
  const int whole = static_cast<int>(magnitude);
  switch (step.op) {
    case AugmentOp::kIdentity:
      return;
    case AugmentOp::kShearX:
      return transform({.xy = magnitude}, step.sampling, fill, image);
    case AugmentOp::kShearY:
      return transform({.yx = magnitude}, step.sampling, fill, image);
    case AugmentOp::kTranslateX:
      return transform({.x0 = magnitude * image.width}, step.sampling, fill, image);
    case AugmentOp::kTranslateY:
      return transform({.y0 = magnitude * image.height}, step.sampling, fill, image);
    case AugmentOp::kRotate:
      if (magnitude == 0) return;
      return transform(rotation(magnitude, image.height, image.width), step.sampling, fill, image);
    case AugmentOp::kBrightness:
      return map_all(image, [&](int value) { return blend(0, value, factor); });
    case AugmentOp::kColor:
      return blend_color(factor, image);
    case AugmentOp::kContrast:
      return blend_contrast(factor, image);
    case AugmentOp::kSharpness:
      return blend_sharpness(factor, image);
    case AugmentOp::kPosterize:
      return map_all(image,
                     [&](int value) { return static_cast<uint8_t>(value & (0xff << (8 - std::clamp(whole, 0, 8)))); });
    case AugmentOp::kSolarize:
      return map_all(image, [&](int value) { return static_cast<uint8_t>(value < whole ? value : 255 - value); });
    case AugmentOp::kSolarizeAdd:
      return map_all(
          image, [&](int value) { return static_cast<uint8_t>(value < 128 ? std::min(255, value + whole) : value); });
    case AugmentOp::kAutoContrast:
      return auto_contrast(image);
    case AugmentOp::kEqualize:
    case AugmentOp::kInvert:
      return apply(step, {}, image);  // torchvision's are the same
  }
}

}  // namespace trainyard::data
