#include "trainyard/data/augment/augment_affine.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace trainyard::data {
namespace {

// Where row y's pixels come from: x and y in pixels of the input, counted from its first pixel's centre. In the steps
// of torchvision's affine_grid and torch's grid_sample, over places from -1 to 1: where a place is between two pixels,
// as in a rotation by 90 degrees of sides whose sum is odd, their rounding decides which one is the nearest.
void places_of_row(const AffineMap& map, const PlanarImage& image, int y, float* xs, float* ys) {
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  const float middle_x = 0.5F * width, middle_y = 0.5F * height;
  const float xx = map.xx / middle_x, xy = map.xy / middle_x, x0 = map.x0 / middle_x;
  const float yx = map.yx / middle_y, yy = map.yy / middle_y, y0 = map.y0 / middle_y;
  const float row = static_cast<float>(y) + 0.5F - middle_y;
  for (int x = 0; x < image.width; ++x) {
    const float column = static_cast<float>(x) + 0.5F - middle_x;
    xs[x] = ((column * xx + row * xy + x0 + 1) * width - 1) / 2;
    ys[x] = ((column * yx + row * yy + y0 + 1) * height - 1) / 2;
  }
}

uint8_t rounded(float value) {
  return static_cast<uint8_t>(std::lrint(value));
}

// Bounds as reals: a place far outside is no int.
bool inside(float x, float y, const PlanarImage& image) {
  return x >= 0 && y >= 0 && x < static_cast<float>(image.width) && y < static_cast<float>(image.height);
}

void nearest_row(const PlanarImage& source, const AugmentOptions& options, const float* xs, const float* ys, int64_t at,
                 PlanarImage& image) {
  const int64_t plane = source.plane();
  for (int x = 0; x < source.width; ++x, ++at) {
    const float column = std::nearbyint(xs[x]), row = std::nearbyint(ys[x]);
    if (inside(column, row, source)) {
      const int64_t from = static_cast<int64_t>(row) * source.width + static_cast<int64_t>(column);
      for (int c = 0; c < 3; ++c) image.pixels[c * plane + at] = source.pixels[c * plane + from];
    } else {
      for (int c = 0; c < 3; ++c) image.pixels[c * plane + at] = rounded(options.fill[c]);
    }
  }
}

// At the image's edge a sum lacks the part that is outside. With a fill torchvision's _apply_grid_transform() takes the
// part that is covered of this sum once more, and the fill for the rest. No fill is what its fill of None is: the sum.
void bilinear_row(const PlanarImage& source, const AugmentOptions& options, const float* xs, const float* ys,
                  int64_t at, PlanarImage& image) {
  const int64_t plane = source.plane();
  const bool fills = std::any_of(options.fill.begin(), options.fill.end(), [](float value) { return value != 0; });
  for (int x = 0; x < source.width; ++x, ++at) {
    const float left = std::floor(xs[x]), top = std::floor(ys[x]);
    float sum[3] = {0, 0, 0};
    float covered = 0;
    for (int corner = 0; corner < 4; ++corner) {
      const float column = left + static_cast<float>(corner & 1), row = top + static_cast<float>(corner >> 1);
      if (!inside(column, row, source)) continue;
      const float weight = (1 - std::abs(xs[x] - column)) * (1 - std::abs(ys[x] - row));
      const int64_t from = static_cast<int64_t>(row) * source.width + static_cast<int64_t>(column);
      for (int c = 0; c < 3; ++c) sum[c] += weight * static_cast<float>(source.pixels[c * plane + from]);
      covered += weight;
    }
    for (int c = 0; c < 3; ++c) {
      const float value = fills ? (sum[c] - options.fill[c]) * covered + options.fill[c] : sum[c];
      image.pixels[c * plane + at] = rounded(std::clamp(value, 0.0F, 255.0F));
    }
  }
}

}  // namespace

AffineMap AffineMap::shear_x(float slope, int height) {
  return {.xy = slope, .x0 = slope * 0.5F * static_cast<float>(height)};
}

AffineMap AffineMap::shear_y(float slope, int width) {
  return {.yx = slope, .y0 = slope * 0.5F * static_cast<float>(width)};
}

AffineMap AffineMap::translation(float right, float down) {
  return {.x0 = -right, .y0 = -down};
}

AffineMap AffineMap::rotation(float degrees) {
  const double angle = static_cast<double>(degrees) * std::numbers::pi / 180;
  const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
  return {.xx = cosine, .xy = -sine, .yx = sine, .yy = cosine};
}

void transform_affine(const AffineMap& map, const AugmentOptions& options, PlanarImage& image) {
  const PlanarImage source = image;
  PooledVector<float> xs(image.width), ys(image.width);
  for (int y = 0; y < image.height; ++y) {
    places_of_row(map, image, y, xs.data(), ys.data());
    const int64_t at = static_cast<int64_t>(y) * image.width;
    options.sampling == AugmentSampling::kBilinear ? bilinear_row(source, options, xs.data(), ys.data(), at, image)
                                                   : nearest_row(source, options, xs.data(), ys.data(), at, image);
  }
}

}  // namespace trainyard::data
