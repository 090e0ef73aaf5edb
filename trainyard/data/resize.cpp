#include "trainyard/data/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "trainyard/core/error.h"

namespace trainyard::data {
namespace {

// One input position and its part in an output value.
struct Tap {
  int index;
  float weight;
};

// The taps of the outputs of one axis: output i has [first[i], first[i + 1]).
struct Axis {
  std::vector<Tap> taps;
  std::vector<int> first = {0};

  void end_output() { first.push_back(static_cast<int>(taps.size())); }
};

constexpr int kBicubicSteps = 1024;
constexpr float kKeysA = -0.75F;

// Keys' kernel at distances of 0 to 2 in steps of 1 / kBicubicSteps.
const std::vector<float>& bicubic_table() {
  static const std::vector<float> table = [] {
    std::vector<float> values;
    for (int i = 0; i <= 2 * kBicubicSteps; ++i) {
      const float x = static_cast<float>(i) / kBicubicSteps;
      values.push_back(i <= kBicubicSteps ? ((kKeysA + 2) * x - (kKeysA + 3)) * x * x + 1
                                          : ((kKeysA * x - 5 * kKeysA) * x + 8 * kKeysA) * x - 4 * kKeysA);
    }
    return values;
  }();
  return table;
}

void add_bicubic(float place, int last, Axis& axis) {
  const int base = static_cast<int>(place);
  const int step = static_cast<int>(std::lrint((place - static_cast<float>(base)) * kBicubicSteps));
  const std::vector<float>& table = bicubic_table();
  const std::array<float, 4> weights = {table[kBicubicSteps + step], table[step], table[kBicubicSteps - step],
                                        table[2 * kBicubicSteps - step]};
  for (int k = 0; k < 4; ++k) axis.taps.push_back({std::clamp(base - 1 + k, 0, last), weights[k]});
}

void add_area(float begin, float end, float scale, int last, Axis& axis) {
  for (int i = static_cast<int>(std::floor(begin)); i < static_cast<int>(std::ceil(end)); ++i) {
    const float covered = std::min(static_cast<float>(i + 1), end) - std::max(static_cast<float>(i), begin);
    axis.taps.push_back({std::clamp(i, 0, last), covered / scale});
  }
}

// Outputs [begin, begin + count) of an axis that goes from `input` to `output` pixels.
Axis make_axis(int input, int output, int begin, int count, ResizeMethod method) {
  const float scale = static_cast<float>(input) / static_cast<float>(output);
  const int last = input - 1;
  Axis axis;
  for (int i = begin; i < begin + count; ++i) {
    const float place = static_cast<float>(i) * scale;
    const int base = std::min(static_cast<int>(place), last);
    switch (method) {
      case ResizeMethod::kNearest:
        axis.taps.push_back({base, 1.0F});
        break;
      case ResizeMethod::kBilinear: {
        const float part = place - static_cast<float>(base);
        axis.taps.push_back({base, 1.0F - part});
        axis.taps.push_back({std::min(base + 1, last), part});
        break;
      }
      case ResizeMethod::kBicubic:
        add_bicubic(place, last, axis);
        break;
      case ResizeMethod::kArea:
        add_area(place, static_cast<float>(i + 1) * scale, scale, last, axis);
        break;
    }
    axis.end_output();
  }
  return axis;
}

// row[0..count) = weighted sum of the rows of `taps`. Rows are contiguous, so this pass is the one that vectorizes.
void mix_rows(const uint8_t* pixels, ptrdiff_t stride, std::span<const Tap> taps, int count, float* row) {
  const uint8_t* source = pixels + taps[0].index * stride;
  for (int i = 0; i < count; ++i) row[i] = taps[0].weight * static_cast<float>(source[i]);
  for (const Tap& tap : taps.subspan(1)) {
    if (tap.weight == 0) continue;
    source = pixels + tap.index * stride;
    for (int i = 0; i < count; ++i) row[i] += tap.weight * static_cast<float>(source[i]);
  }
}

}  // namespace

ResizeMethod resize_method(std::string_view name) {
  if (name == "nearest") return ResizeMethod::kNearest;
  if (name == "bilinear") return ResizeMethod::kBilinear;
  if (name == "bicubic") return ResizeMethod::kBicubic;
  if (name == "area") return ResizeMethod::kArea;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "unknown resize method",
                                                        .expected = "nearest, bilinear, bicubic or area",
                                                        .actual = fmt::format("'{}'", name)});
}

void resize(const Image& image, ImageSize size, const CropWindow& window, ResizeMethod method, bool mirror,
            float* out) {
  const Axis rows = make_axis(image.height, size.height, window.y, window.height, method);
  Axis columns = make_axis(image.width, size.width, window.x, window.width, method);
  for (Tap& tap : columns.taps) {
    if (mirror) tap.index = image.width - 1 - tap.index;
  }
  // Only the columns between the first and the last tap are mixed.
  const auto [low, high] = std::minmax_element(columns.taps.begin(), columns.taps.end(),
                                               [](const Tap& a, const Tap& b) { return a.index < b.index; });
  const int first_column = low->index;
  const int needed = 3 * (high->index - first_column + 1);
  for (Tap& tap : columns.taps) tap.index = 3 * (tap.index - first_column);

  const uint8_t* pixels = image.pixels.data() + ptrdiff_t{3} * first_column;
  const ptrdiff_t plane = static_cast<ptrdiff_t>(window.height) * window.width;
  std::vector<float> row(needed);
  for (int y = 0; y < window.height; ++y) {
    const std::span<const Tap> row_taps(rows.taps.data() + rows.first[y], rows.taps.data() + rows.first[y + 1]);
    mix_rows(pixels, ptrdiff_t{3} * image.width, row_taps, needed, row.data());
    float* target = out + static_cast<ptrdiff_t>(y) * window.width;
    for (int x = 0; x < window.width; ++x) {
      float red = 0, green = 0, blue = 0;
      for (int t = columns.first[x]; t < columns.first[x + 1]; ++t) {
        const Tap tap = columns.taps[t];
        red += tap.weight * row[tap.index];
        green += tap.weight * row[tap.index + 1];
        blue += tap.weight * row[tap.index + 2];
      }
      target[x] = red;
      target[plane + x] = green;
      target[2 * plane + x] = blue;
    }
  }
}

}  // namespace trainyard::data
