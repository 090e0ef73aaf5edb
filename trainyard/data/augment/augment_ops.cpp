#include "trainyard/data/augment/augment_ops.h"

#include <algorithm>
#include <cmath>

#include "trainyard/data/augment/augment_affine.h"
#include "trainyard/data/augment/pixel_table.h"

namespace trainyard::data {
namespace {

// torchvision cuts the part behind the point off.
uint8_t to_pixel(float value) {
  return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

uint8_t gray_of(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint8_t>(0.2989F * red + 0.587F * green + 0.114F * blue);
}

// factor * pixel + (1 - factor) * other: factor 1 leaves it.
uint8_t blend(uint8_t pixel, float other, float factor) {
  return to_pixel(factor * pixel + (1 - factor) * other);
}

void adjust_color(float factor, PlanarImage& image) {
  const int64_t plane = image.plane();
  uint8_t* red = image.pixels.data();
  uint8_t* green = red + plane;
  uint8_t* blue = green + plane;
  for (int64_t i = 0; i < plane; ++i) {
    const float gray = gray_of(red[i], green[i], blue[i]);
    red[i] = blend(red[i], gray, factor);
    green[i] = blend(green[i], gray, factor);
    blue[i] = blend(blue[i], gray, factor);
  }
}

void adjust_contrast(float factor, PlanarImage& image) {
  const int64_t plane = image.plane();
  const uint8_t* red = image.pixels.data();
  int64_t sum = 0;
  for (int64_t i = 0; i < plane; ++i) sum += gray_of(red[i], red[plane + i], red[2 * plane + i]);
  const float mean = static_cast<float>(static_cast<double>(sum) / static_cast<double>(plane));
  map_all(image, [&](int value) { return blend(static_cast<uint8_t>(value), mean, factor); });
}

void adjust_sharpness(float factor, PlanarImage& image) {
  map_smoothed(image, [&](uint8_t value, int blurred) { return blend(value, static_cast<float>(blurred), factor); });
}

void stretch_contrast(PlanarImage& image) {
  for (int c = 0; c < 3; ++c) {
    uint8_t* pixels = image.pixels.data() + c * image.plane();
    uint8_t low = 255, high = 0;
    for (int64_t i = 0; i < image.plane(); ++i) {
      low = std::min(low, pixels[i]);
      high = std::max(high, pixels[i]);
    }
    if (low == high) continue;
    const float scale = 255.0F / static_cast<float>(high - low);
    look_up(table_of([&](int value) { return to_pixel(static_cast<float>(value - low) * scale); }), pixels,
            image.plane());
  }
}

void equalize(PlanarImage& image) {
  for (int c = 0; c < 3; ++c) {
    uint8_t* pixels = image.pixels.data() + c * image.plane();
    std::array<int64_t, 256> histogram{};
    for (int64_t i = 0; i < image.plane(); ++i) ++histogram[pixels[i]];
    const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t count) { return count > 0; });
    const int64_t step = (image.plane() - *last) / 255;
    if (step == 0) continue;
    int64_t below = 0;
    look_up(table_of([&](int value) {
              const int64_t level = (below + step / 2) / step;
              below += histogram[value];
              return static_cast<uint8_t>(value == 0 ? 0 : std::min<int64_t>(level, 255));
            }),
            pixels, image.plane());
  }
}

}  // namespace

std::string_view augment_op_name(AugmentOp op) {
  static constexpr std::array<std::string_view, kAugmentOps> kNames = {
      "Identity", "ShearX",    "ShearY",    "TranslateX", "TranslateY",   "Rotate",   "Brightness", "Color",
      "Contrast", "Sharpness", "Posterize", "Solarize",   "AutoContrast", "Equalize", "Invert",     "SolarizeAdd"};
  return kNames[static_cast<size_t>(op)];
}

void apply(const AugmentStep& step, const AugmentOptions& options, PlanarImage& image) {
  const auto magnitude = static_cast<float>(step.magnitude);
  const float factor = 1 + magnitude;
  switch (step.op) {
    case AugmentOp::kIdentity:
      return;
    case AugmentOp::kShearX:
      return transform_affine(AffineMap::shear_x(magnitude, image.height), options, image);
    case AugmentOp::kShearY:
      return transform_affine(AffineMap::shear_y(magnitude, image.width), options, image);
    case AugmentOp::kTranslateX:
      return transform_affine(AffineMap::translation(std::trunc(magnitude), 0), options, image);
    case AugmentOp::kTranslateY:
      return transform_affine(AffineMap::translation(0, std::trunc(magnitude)), options, image);
    case AugmentOp::kRotate:
      return transform_affine(AffineMap::rotation(magnitude), options, image);
    case AugmentOp::kBrightness:
      return map_all(image, [&](int value) { return to_pixel(factor * static_cast<float>(value)); });
    case AugmentOp::kColor:
      return adjust_color(factor, image);
    case AugmentOp::kContrast:
      return adjust_contrast(factor, image);
    case AugmentOp::kSharpness:
      return adjust_sharpness(factor, image);
    case AugmentOp::kPosterize:
      return map_all(image, [&](int value) {
        return static_cast<uint8_t>(value & (0xff << (8 - std::clamp(static_cast<int>(magnitude), 0, 8))));
      });
    case AugmentOp::kSolarize:
      return map_all(image, [&](int value) {
        return static_cast<uint8_t>(static_cast<float>(value) >= magnitude ? 255 - value : value);
      });
    case AugmentOp::kAutoContrast:
      return stretch_contrast(image);
    case AugmentOp::kEqualize:
      return equalize(image);
    case AugmentOp::kInvert:
      return map_all(image, [](int value) { return static_cast<uint8_t>(255 - value); });
    case AugmentOp::kSolarizeAdd:
      return map_all(image, [&](int value) {
        return value < 128 ? to_pixel(static_cast<float>(value) + magnitude) : static_cast<uint8_t>(value);
      });
  }
}

}  // namespace trainyard::data
