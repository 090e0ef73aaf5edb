#include "trainyard/data/augment/random_erasing.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

void RandomErasingOptions::validate() const {
  if (!(probability >= 0 && probability <= 1) || !(min_area >= 0 && min_area <= max_area && max_area <= 1) ||
      !(min_aspect_ratio > 0 && min_aspect_ratio <= max_aspect_ratio)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "random erasing options are out of range",
                       .expected = "a probability of 0 to 1, areas and aspect ratios that are ranges",
                       .actual = fmt::format("probability {}, area {} to {}, aspect ratio {} to {}", probability,
                                             min_area, max_area, min_aspect_ratio, max_aspect_ratio)});
  }
}

std::optional<CropWindow> draw_erased(const RandomErasingOptions& options, ImageSize image,
                                      core::RandomStream& random) {
  if (!(random.uniform() < options.probability)) return std::nullopt;
  const float low = std::log(options.min_aspect_ratio), high = std::log(options.max_aspect_ratio);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area =
        random.uniform(options.min_area, options.max_area) * static_cast<double>(image.height) * image.width;
    const double aspect = std::exp(random.uniform(low, high));
    const int height = static_cast<int>(std::lrint(std::sqrt(area * aspect)));
    const int width = static_cast<int>(std::lrint(std::sqrt(area / aspect)));
    if (height >= image.height || width >= image.width) continue;
    const auto y = static_cast<int>(random.below(image.height - height + 1));
    const auto x = static_cast<int>(random.below(image.width - width + 1));
    return CropWindow{y, x, height, width};
  }
  return std::nullopt;
}

void write_zeros(const CropWindow& window, ImageSize size, float* image) {
  for (int c = 0; c < 3; ++c) {
    for (int y = window.y; y < window.y + window.height; ++y) {
      std::fill_n(image + (static_cast<int64_t>(c) * size.height + y) * size.width + window.x, window.width, 0.0F);
    }
  }
}

void erase(const RandomErasingOptions& options, ImageSize size, core::RandomStream& random, float* image) {
  const auto part = draw_erased(options, size, random);
  if (!part) return;
  if (options.value == ErasedValue::kZero) return write_zeros(*part, size, image);
  for (int c = 0; c < 3; ++c) {
    const float color = options.value == ErasedValue::kChannelNoise ? random.normal() : 0;
    for (int y = part->y; y < part->y + part->height; ++y) {
      float* row = image + (static_cast<int64_t>(c) * size.height + y) * size.width + part->x;
      if (options.value == ErasedValue::kChannelNoise) {
        std::fill_n(row, part->width, color);
      } else {
        random.normals(row, part->width);
      }
    }
  }
}

}  // namespace trainyard::data
