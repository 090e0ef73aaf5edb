#include "trainyard/data/image/resize_axis.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trainyard::data {
namespace {

// Keys' kernel.
float keys(float distance, float a) {
  const float x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

struct Place {
  float center;  // where the output samples the input: pixel p is at p
  int last;      // input pixel
};

void add_nearest(float place, int last, Axis& axis) {
  axis.taps.push_back({std::min(static_cast<int>(place), last), 1.0F});
}

void add_bilinear(const Place& place, Axis& axis) {
  const float base = std::floor(place.center);
  const float part = place.center - base;
  const int below = static_cast<int>(base);
  axis.taps.push_back({std::clamp(below, 0, place.last), 1.0F - part});
  axis.taps.push_back({std::clamp(below + 1, 0, place.last), part});
}

void add_bicubic(const Place& place, bool half_pixel_centers, Axis& axis) {
  static constexpr float kSteps = 1024;
  const float a = half_pixel_centers ? -0.5F : -0.75F;
  const float base = std::floor(place.center);
  const float part = std::round((place.center - base) * kSteps) / kSteps;
  std::array<Tap, 4> taps{};
  float sum = 0;
  for (int k = 0; k < 4; ++k) {
    const int index = static_cast<int>(base) - 1 + k;
    const bool inside = index >= 0 && index <= place.last;
    const float weight = keys(part - static_cast<float>(k - 1), a);
    taps[k] = {std::clamp(index, 0, place.last), half_pixel_centers && !inside ? 0 : weight};
    sum += taps[k].weight;
  }
  for (Tap& tap : taps) {
    if (half_pixel_centers) tap.weight /= sum;
    axis.taps.push_back(tap);
  }
}

void add_area(float begin, float end, float scale, int last, Axis& axis) {
  for (int i = static_cast<int>(std::floor(begin)); i < static_cast<int>(std::ceil(end)); ++i) {
    const float covered = std::min(static_cast<float>(i + 1), end) - std::max(static_cast<float>(i), begin);
    axis.taps.push_back({std::clamp(i, 0, last), covered / scale});
  }
}

// The method's kernel stretched by `scale` >= 1.
void add_wide(const Place& place, float scale, ResizeMethod method, Axis& axis) {
  const float support = scale * (method == ResizeMethod::kBicubic ? 2.0F : 1.0F);
  const int begin = std::max(static_cast<int>(std::ceil(place.center - support)), 0);
  const int end = std::min(static_cast<int>(std::floor(place.center + support)), place.last);
  const size_t first = axis.taps.size();
  float sum = 0;
  for (int i = begin; i <= end; ++i) {
    const float distance = (static_cast<float>(i) - place.center) / scale;
    const float weight =
        method == ResizeMethod::kBicubic ? keys(distance, -0.5F) : std::max(1 - std::abs(distance), 0.0F);
    axis.taps.push_back({i, weight});
    sum += weight;
  }
  for (size_t t = first; t < axis.taps.size(); ++t) axis.taps[t].weight /= sum;
}

}  // namespace

Axis make_axis(int input, int output, int begin, int count, const ResizeOptions& options) {
  const float scale = static_cast<float>(input) / static_cast<float>(output);
  const float offset = options.half_pixel_centers ? 0.5F : 0.0F;
  Axis axis;
  for (int i = begin; i < begin + count; ++i) {
    const size_t taps_before = axis.taps.size();
    const float place = (static_cast<float>(i) + offset) * scale;
    const Place center{place - offset, input - 1};
    const bool smooth = options.method == ResizeMethod::kBilinear || options.method == ResizeMethod::kBicubic;
    if (options.antialias && smooth) {
      add_wide(center, std::max(scale, 1.0F), options.method, axis);
    } else if (options.method == ResizeMethod::kNearest) {
      add_nearest(place, center.last, axis);
    } else if (options.method == ResizeMethod::kBilinear) {
      add_bilinear(center, axis);
    } else if (options.method == ResizeMethod::kBicubic) {
      add_bicubic(center, options.half_pixel_centers, axis);
    } else {
      const float from = static_cast<float>(i) * scale;
      add_area(from, static_cast<float>(i + 1) * scale, scale, center.last, axis);
    }
    // Behind 2^24 outputs a float's neighbours are pixels apart, and an output's part of the input may come out empty.
    if (axis.taps.size() == taps_before) add_nearest(place, center.last, axis);
    axis.end_output();
  }
  return axis;
}

Axis make_column_axis(int input, int output, int begin, int count, const ResizeOptions& options) {
  Axis axis = make_axis(input, output, begin, count, options);
  for (Tap& tap : axis.taps) {
    if (options.mirror) tap.index = input - 1 - tap.index;
  }
  return axis;
}

}  // namespace trainyard::data
