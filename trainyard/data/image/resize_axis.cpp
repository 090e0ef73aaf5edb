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

// `renormalizes`: pixels outside of the image do not count, and the weights of the others sum to 1.
void add_bicubic(const Place& place, bool renormalizes, Axis& axis) {
  static constexpr float kSteps = 1024;
  const float a = renormalizes ? -0.5F : -0.75F;
  const float base = std::floor(place.center);
  const float part = std::round((place.center - base) * kSteps) / kSteps;
  std::array<Tap, 4> taps{};
  float sum = 0;
  for (int k = 0; k < 4; ++k) {
    const int index = static_cast<int>(base) - 1 + k;
    const bool inside = index >= 0 && index <= place.last;
    const float weight = keys(part - static_cast<float>(k - 1), a);
    taps[k] = {std::clamp(index, 0, place.last), renormalizes && !inside ? 0 : weight};
    sum += taps[k].weight;
  }
  for (Tap& tap : taps) {
    if (renormalizes) tap.weight /= sum;
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
void add_wide(const Place& place, float scale, const ResizeOptions& options, Axis& axis) {
  const ResizeMethod method = options.method;
  const float support = scale * (method == ResizeMethod::kBicubic ? 2.0F : 1.0F);
  int begin = static_cast<int>(std::ceil(place.center - support));
  int end = static_cast<int>(std::floor(place.center + support));
  if (!options.repeat_edges) {
    begin = std::max(begin, 0);
    end = std::min(end, place.last);
  }
  const size_t first = axis.taps.size();
  float sum = 0;
  for (int i = begin; i <= end; ++i) {
    const float distance = (static_cast<float>(i) - place.center) / scale;
    const float weight =
        method == ResizeMethod::kBicubic ? keys(distance, -0.5F) : std::max(1 - std::abs(distance), 0.0F);
    axis.taps.push_back({std::clamp(i, 0, place.last), weight});
    sum += weight;
  }
  for (size_t t = first; t < axis.taps.size(); ++t) axis.taps[t].weight /= sum;
}

// `step`: ResizeOptions::row_step or column_step.
Axis make_steps(int input, int output, int begin, int count, float step, const ResizeOptions& options) {
  const float scale = step > 0 ? step : static_cast<float>(input) / static_cast<float>(output);
  const float origin = step > 0 ? 0.5F * (static_cast<float>(input) - static_cast<float>(output) * step) : 0.0F;
  const float offset = options.half_pixel_centers ? 0.5F : 0.0F;
  Axis axis;
  for (int i = begin; i < begin + count; ++i) {
    const size_t taps_before = axis.taps.size();
    const float from_origin = (static_cast<float>(i) + offset) * scale;
    const float place = step > 0 ? std::max(from_origin + origin, 0.0F) : from_origin;
    const Place center{step > 0 ? from_origin + origin - offset : from_origin - offset, input - 1};
    const bool smooth = options.method == ResizeMethod::kBilinear || options.method == ResizeMethod::kBicubic;
    if (options.antialias && smooth) {
      add_wide(center, std::max(scale, 1.0F), options, axis);
    } else if (options.method == ResizeMethod::kNearest) {
      add_nearest(place, center.last, axis);
    } else if (options.method == ResizeMethod::kBilinear) {
      add_bilinear(center, axis);
    } else if (options.method == ResizeMethod::kBicubic) {
      add_bicubic(center, options.half_pixel_centers && !options.repeat_edges, axis);
    } else {
      const float from = static_cast<float>(i) * scale + origin;
      add_area(from, static_cast<float>(i + 1) * scale + origin, scale, center.last, axis);
    }
    // Behind 2^24 outputs a float's neighbours are pixels apart, and an output's part of the input may come out empty.
    if (axis.taps.size() == taps_before) add_nearest(place, center.last, axis);
    axis.end_output();
  }
  return axis;
}

}  // namespace

Axis make_axis(int input, int output, int begin, int count, const ResizeOptions& options) {
  return make_steps(input, output, begin, count, options.row_step, options);
}

Axis make_column_axis(int input, int output, int begin, int count, const ResizeOptions& options) {
  Axis axis = make_steps(input, output, begin, count, options.column_step, options);
  for (Tap& tap : axis.taps) {
    if (options.mirror) tap.index = input - 1 - tap.index;
  }
  return axis;
}

}  // namespace trainyard::data
