#include "trainyard/data/augment/crop.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

// 0 for a box whose sides are the wrong way round.
double area(const CropWindow& window) {
  return static_cast<double>(std::max(window.height, 0)) * std::max(window.width, 0);
}

double overlap(const CropWindow& a, const CropWindow& b) {
  const int height = std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y);
  const int width = std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x);
  return height <= 0 || width <= 0 ? 0 : static_cast<double>(height) * width;
}

CropWindow to_pixels(const Box& box, ImageSize image) {
  const int y = static_cast<int>(box.ymin * static_cast<float>(image.height));
  const int x = static_cast<int>(box.xmin * static_cast<float>(image.width));
  return {y, x, static_cast<int>(box.ymax * static_cast<float>(image.height)) - y,
          static_cast<int>(box.xmax * static_cast<float>(image.width)) - x};
}

int round_to_int(double value) {
  return static_cast<int>(std::lrint(value));
}

// Uniform in [0, n), 0 for n = 0.
int draw(core::RandomStream& random, int n) {
  return n > 0 ? static_cast<int>(random.below(n)) : 0;
}

// One window of the given aspect ratio, nothing when no whole numbers satisfy the area.
std::optional<CropWindow> draw_window(ImageSize image, const CropOptions& options, double aspect,
                                      core::RandomStream& random) {
  const double pixels = static_cast<double>(image.height) * image.width;
  const double min_area = options.min_area * pixels;
  const double max_area = options.max_area * pixels;
  int max_height = round_to_int(std::sqrt(max_area / aspect));
  if (round_to_int(max_height * aspect) > image.width) {
    // The largest height whose width still rounds into the image.
    max_height = static_cast<int>((image.width + 0.5 - 1e-7) / aspect);
  }
  max_height = std::min(max_height, image.height);
  const int min_height = std::min(round_to_int(std::sqrt(min_area / aspect)), max_height);
  int height = min_height + draw(random, max_height - min_height + 1);
  int width = round_to_int(height * aspect);
  // Rounding may leave the area's bounds by a little: one row more or less.
  if (static_cast<double>(width) * height < min_area) {
    ++height;
  } else if (static_cast<double>(width) * height > max_area) {
    --height;
  }
  width = round_to_int(height * aspect);
  const double size = static_cast<double>(width) * height;
  if (size < min_area || size > max_area || width > image.width || height > image.height || width < 1 || height < 1) {
    return std::nullopt;
  }
  const int y = draw(random, image.height - height);
  const int x = draw(random, image.width - width);
  return CropWindow{y, x, height, width};
}

CropWindow sample_distorted_bounding_box(ImageSize image, const std::vector<Box>& boxes, const CropOptions& options,
                                         core::RandomStream& random) {
  const CropWindow whole{0, 0, image.height, image.width};
  std::vector<CropWindow> objects;
  for (const Box& box : boxes) objects.push_back(to_pixels(box, image));
  if (objects.empty()) objects.push_back(whole);

  for (int attempt = 0; attempt < options.max_attempts; ++attempt) {
    const double aspect = random.uniform(options.min_aspect_ratio, options.max_aspect_ratio);
    const std::optional<CropWindow> window = draw_window(image, options, aspect, random);
    if (!window) continue;
    const bool covers = std::any_of(objects.begin(), objects.end(), [&](const CropWindow& object) {
      return area(object) >= 1 && overlap(*window, object) >= options.min_object_covered * area(object);
    });
    if (covers) return *window;
  }
  return whole;
}

CropWindow sample_resized_crop(ImageSize image, const CropOptions& options, core::RandomStream& random) {
  const double pixels = static_cast<double>(image.height) * image.width;
  const float low = std::log(options.min_aspect_ratio), high = std::log(options.max_aspect_ratio);
  for (int attempt = 0; attempt < options.max_attempts; ++attempt) {
    const double target = pixels * random.uniform(options.min_area, options.max_area);
    const double aspect = std::exp(random.uniform(low, high));
    const int width = round_to_int(std::sqrt(target * aspect));
    const int height = round_to_int(std::sqrt(target / aspect));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int y = draw(random, image.height - height + 1);
    const int x = draw(random, image.width - width + 1);
    return {y, x, height, width};
  }
  const double aspect =
      std::clamp(static_cast<double>(image.width) / image.height, static_cast<double>(options.min_aspect_ratio),
                 static_cast<double>(options.max_aspect_ratio));
  const int width = std::clamp(round_to_int(image.height * aspect), 1, image.width);
  const int height = std::clamp(round_to_int(image.width / aspect), 1, image.height);
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

}  // namespace

void CropOptions::validate() const {
  if (min_object_covered < 0 || min_aspect_ratio <= 0 || min_aspect_ratio > max_aspect_ratio || min_area <= 0 ||
      min_area > max_area || max_area > 1 || max_attempts < 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "crop options are not ranges",
                       .expected = "0 < min_area <= max_area <= 1, 0 < min_aspect_ratio <= max_aspect_ratio, "
                                   "min_object_covered >= 0, max_attempts >= 1"});
  }
}

CropWindow sample_crop(ImageSize image, const std::vector<Box>& boxes, const CropOptions& options,
                       core::RandomStream& random) {
  return options.method == CropMethod::kResizedCrop ? sample_resized_crop(image, options, random)
                                                    : sample_distorted_bounding_box(image, boxes, options, random);
}

}  // namespace trainyard::data
