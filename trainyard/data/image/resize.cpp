#include "trainyard/data/image/resize.h"

#include <algorithm>
#include <limits>
#include <span>

#include <fmt/core.h>
#include <immintrin.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/base/stage_times.h"
#include "trainyard/data/image/resize_axis.h"

namespace trainyard::data {
namespace {

constexpr int kLanes = 8;

// row[0, count) = weighted sum of the rows of `taps`.
void mix_rows(const uint8_t* pixels, ptrdiff_t stride, std::span<const Tap> taps, int count, float* row) {
  const uint8_t* first = pixels + taps[0].index * stride;
  size_t t = 1;
  if (taps.size() > 1 && taps[1].weight != 0) {
    const uint8_t* second = pixels + taps[1].index * stride;
    const float part = taps[0].weight, other = taps[1].weight;
    for (int i = 0; i < count; ++i)
      row[i] = part * static_cast<float>(first[i]) + other * static_cast<float>(second[i]);
    t = 2;
  } else {
    for (int i = 0; i < count; ++i) row[i] = taps[0].weight * static_cast<float>(first[i]);
  }
  for (; t < taps.size(); ++t) {
    if (taps[t].weight == 0) continue;
    const uint8_t* source = pixels + taps[t].index * stride;
    for (int i = 0; i < count; ++i) row[i] += taps[t].weight * static_cast<float>(source[i]);
  }
}

// The columns' taps for eight outputs at a time: tap t of outputs j and j + 4 are adjacent.
struct Columns {
  int groups = 0;              // of eight outputs; the last one's missing outputs have weight 0
  std::vector<int> tap_count;  // [groups]
  std::vector<int> first_tap;  // [groups]
  std::vector<int> index;      // [taps][8]: first float of the pixel in the mixed row
  std::vector<float> weight;   // [taps][4][2]
};

Columns arrange(const Axis& axis, int count) {
  Columns columns{.groups = (count + kLanes - 1) / kLanes};
  for (int g = 0; g < columns.groups; ++g) {
    size_t most = 0;
    for (int j = 0; j < kLanes && g * kLanes + j < count; ++j) most = std::max(most, axis.of(g * kLanes + j).size());
    columns.first_tap.push_back(static_cast<int>(columns.index.size()) / kLanes);
    columns.tap_count.push_back(static_cast<int>(most));
    for (size_t t = 0; t < most; ++t) {
      for (int j = 0; j < kLanes; ++j) {
        const std::span<const Tap> taps = g * kLanes + j < count ? axis.of(g * kLanes + j) : std::span<const Tap>();
        columns.index.push_back(t < taps.size() ? taps[t].index : 0);
        const int other = (j / 2) + (j % 2) * 4;
        const std::span<const Tap> paired =
            g * kLanes + other < count ? axis.of(g * kLanes + other) : std::span<const Tap>();
        columns.weight.push_back(t < paired.size() ? paired[t].weight : 0);
      }
    }
  }
  return columns;
}

// Two pixels' four floats (red, green, blue and what comes next) in one register.
__m256 load_pair(const float* row, int low, int high) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row + low)), _mm_loadu_ps(row + high), 1);
}

// Both halves of a register filled with a weight of their own.
__m256 spread_pair(const float* weights) {
  const __m128 both = _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(weights)));
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(both), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

struct Planes {
  __m256 scale[3], shift[3];
  __m256 low, high;  // where values are cut off before that
  ptrdiff_t plane;
};

// One row of outputs from the mixed row.
void mix_columns(const float* row, const Columns& columns, const Planes& planes, int width, float* out) {
  for (int g = 0; g < columns.groups; ++g) {
    __m256 sums[4] = {};
    for (int t = columns.first_tap[g]; t < columns.first_tap[g] + columns.tap_count[g]; ++t) {
      const int* index = columns.index.data() + ptrdiff_t{t} * kLanes;
      const float* weight = columns.weight.data() + ptrdiff_t{t} * kLanes;
      for (int j = 0; j < 4; ++j) {
        sums[j] = _mm256_fmadd_ps(load_pair(row, index[j], index[j + 4]), spread_pair(weight + 2 * j), sums[j]);
      }
    }
    // Transposed: a register for each channel.
    const __m256 low01 = _mm256_unpacklo_ps(sums[0], sums[1]), low23 = _mm256_unpacklo_ps(sums[2], sums[3]);
    const __m256 high01 = _mm256_unpackhi_ps(sums[0], sums[1]), high23 = _mm256_unpackhi_ps(sums[2], sums[3]);
    const __m256 channels[3] = {_mm256_shuffle_ps(low01, low23, 0x44), _mm256_shuffle_ps(low01, low23, 0xee),
                                _mm256_shuffle_ps(high01, high23, 0x44)};
    const int left = width - g * kLanes;
    for (int c = 0; c < 3; ++c) {
      const __m256 cut = _mm256_min_ps(_mm256_max_ps(channels[c], planes.low), planes.high);
      const __m256 values = _mm256_fmadd_ps(cut, planes.scale[c], planes.shift[c]);
      float* target = out + c * planes.plane + ptrdiff_t{g} * kLanes;
      if (left >= kLanes) {
        _mm256_storeu_ps(target, values);
      } else {
        float all[kLanes];
        _mm256_storeu_ps(all, values);
        std::copy_n(all, left, target);
      }
    }
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

void resize(const ImageView& image, ImageSize size, const CropWindow& window, const ResizeOptions& options,
            float* out) {
  const StageTimer timer(Stage::kResize);
  const Axis rows = make_axis(image.height, size.height, window.y, window.height, options);
  Axis axis = make_column_axis(image.width, size.width, window.x, window.width, options);
  // Only the columns between the first and the last tap are mixed.
  const auto [low, high] = std::minmax_element(axis.taps.begin(), axis.taps.end(),
                                               [](const Tap& a, const Tap& b) { return a.index < b.index; });
  const int first_column = low->index;
  const int needed = 3 * (high->index - first_column + 1);
  for (Tap& tap : axis.taps) tap.index = 3 * (tap.index - first_column);
  const Columns columns = arrange(axis, window.width);

  Planes planes{.plane = static_cast<ptrdiff_t>(window.height) * window.width};
  constexpr float kNoLimit = std::numeric_limits<float>::infinity();
  planes.low = _mm256_set1_ps(options.clip ? 0 : -kNoLimit);
  planes.high = _mm256_set1_ps(options.clip ? 255 : kNoLimit);
  for (int c = 0; c < 3; ++c) {
    planes.scale[c] = _mm256_set1_ps(options.scale[c]);
    planes.shift[c] = _mm256_set1_ps(options.shift[c]);
  }
  const uint8_t* pixels = image.pixels + ptrdiff_t{3} * first_column;
  std::vector<float> row(needed + 1);  // the last pixel is read with what comes behind it
  for (int y = 0; y < window.height; ++y) {
    mix_rows(pixels, image.stride, rows.of(y), needed, row.data());
    mix_columns(row.data(), columns, planes, window.width, out + static_cast<ptrdiff_t>(y) * window.width);
  }
}

}  // namespace trainyard::data
