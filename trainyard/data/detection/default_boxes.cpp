#include "trainyard/data/detection/default_boxes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

constexpr float kMatchThreshold = 0.5F;
constexpr float kEpsilon = 1e-8F;  // the box coder adds it to sizes, so that their logarithms are finite
constexpr size_t kFeatureMaps = 6;
constexpr std::array<int, kFeatureMaps> kCells = {38, 19, 10, 5, 3, 1};
constexpr std::array<double, kFeatureMaps> kSteps = {8, 16, 32, 64, 100, 300};  // pixels from cell to cell
constexpr double kImageSize = 300;

struct Size {
  double height = 0, width = 0;
};

// Returns the kinds of boxes of a feature map: squares of its scale and of the geometric mean with the next one's, then
// boxes of the aspect ratios, lying and upright.
std::vector<Size> kinds_of_boxes(size_t map, const std::array<double, kFeatureMaps + 1>& scales) {
  const double scale = scales[map], middle = std::sqrt(scale * scales[map + 1]);
  std::vector<Size> kinds = {{scale, scale}, {middle, middle}};
  const bool three = map >= 1 && map <= 3;  // maps that have the aspect ratio 3
  for (int ratio = 2; ratio <= (three ? 3 : 2); ++ratio) {
    const double wide = scale * std::sqrt(ratio), narrow = scale / std::sqrt(ratio);
    kinds.push_back({narrow, wide});
    kinds.push_back({wide, narrow});
  }
  return kinds;
}

void add_box(std::vector<double>& centers, size_t map, int row, int column, const Size& size) {
  const double cells = kImageSize / kSteps[map];
  for (const double value : {(row + 0.5) / cells, (column + 0.5) / cells, size.height, size.width}) {
    centers.push_back(value);
  }
}

std::vector<double> ssd300_boxes() {
  std::array<double, kFeatureMaps + 1> scales = {21, 45, 99, 153, 207, 261, 315};
  for (double& scale : scales) scale /= kImageSize;
  std::vector<double> centers;
  for (size_t map = 0; map < kFeatureMaps; ++map) {
    for (const Size& size : kinds_of_boxes(map, scales)) {
      for (int row = 0; row < kCells[map]; ++row) {
        for (int column = 0; column < kCells[map]; ++column) add_box(centers, map, row, column, size);
      }
    }
  }
  for (double& value : centers) value = std::clamp(value, 0.0, 1.0);
  return centers;
}

std::vector<double> ssd300_vgg16_boxes() {
  const std::array<double, kFeatureMaps + 1> scales = {0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05};
  std::vector<double> centers;
  for (size_t map = 0; map < kFeatureMaps; ++map) {
    const std::vector<Size> kinds = kinds_of_boxes(map, scales);
    for (int row = 0; row < kCells[map]; ++row) {
      for (int column = 0; column < kCells[map]; ++column) {
        for (const Size& size : kinds) {
          add_box(centers, map, row, column, {std::min(size.height, 1.0), std::min(size.width, 1.0)});
        }
      }
    }
  }
  return centers;  // those of the last column and row of a map may leave the image
}

at::Tensor shared_tensor(const std::vector<float>& boxes) {
  // ATen has no tensors of constant memory.
  return at::from_blob(const_cast<float*>(boxes.data()), {static_cast<int64_t>(boxes.size()) / 4, 4}, at::kFloat);
}

}  // namespace

DefaultBoxes::DefaultBoxes(const std::vector<double>& centers, bool x_first, double largest_log)
    : corners_(centers.size()),
      centers_(centers.size()),
      columns_(centers.size() / 4 * 5),
      x_first_(x_first),
      largest_log_(largest_log) {
  const size_t count = centers.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    const double* const box = &centers[4 * i];
    float* const corner = &corners_[4 * i];
    for (const size_t axis : {size_t{0}, size_t{1}}) {
      corner[axis] = static_cast<float>(box[axis] - box[axis + 2] / 2);
      corner[axis + 2] = static_cast<float>(box[axis] + box[axis + 2] / 2);
      // The original's encoder and decoder take centres and sizes from the rounded corners.
      centers_[4 * i + axis + 2] = corner[axis + 2] - corner[axis];
      centers_[4 * i + axis] = corner[axis] + centers_[4 * i + axis + 2] / 2;
    }
    for (size_t side = 0; side < 4; ++side) columns_[side * count + i] = corner[side];
    columns_[4 * count + i] = (corner[2] - corner[0]) * (corner[3] - corner[1]);
  }
}

const DefaultBoxes& DefaultBoxes::ssd300() {
  static const DefaultBoxes boxes(ssd300_boxes(), false, 80);
  return boxes;
}

const DefaultBoxes& DefaultBoxes::ssd300_vgg16() {
  static const DefaultBoxes boxes(ssd300_vgg16_boxes(), true, std::log(1000.0 / 16));
  return boxes;
}

at::Tensor DefaultBoxes::corners_tensor() const {
  return shared_tensor(corners_);
}

at::Tensor DefaultBoxes::centers_tensor() const {
  return shared_tensor(centers_);
}

EncodedBoxes DefaultBoxes::encode(std::span<const Box> boxes, std::span<const int64_t> labels) const {
  EncodedBoxes encoded{.offsets = at::empty({size(), 4}, at::kFloat), .labels = at::empty({size()}, at::kLong)};
  encoded.matched =
      encode(boxes, labels, encoded.offsets.mutable_data_ptr<float>(), encoded.labels.mutable_data_ptr<int64_t>());
  return encoded;
}

int64_t DefaultBoxes::encode(std::span<const Box> boxes, std::span<const int64_t> labels, float* offsets,
                             int64_t* classes) const {
  if (boxes.size() != labels.size()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "each box needs a label",
                                                          .expected = fmt::format("{} labels", boxes.size()),
                                                          .actual = fmt::format("{}", labels.size())});
  }
  const auto count = static_cast<size_t>(size());
  std::fill_n(offsets, 4 * count, 0.0F);
  std::fill_n(classes, count, int64_t{0});
  if (boxes.empty()) return 0;

  static thread_local std::vector<float> overlaps, best;
  static thread_local std::vector<int32_t> match, forced;
  overlaps.resize(count);
  best.assign(count, kMatchThreshold);
  match.assign(count, -1);
  forced.assign(count, -1);
  const float* const ymin = columns_.data();
  const float *const xmin = ymin + count, *const ymax = xmin + count, *const xmax = ymax + count,
                     *const areas = xmax + count;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box box = boxes[i];
    const float area = (box.ymax - box.ymin) * (box.xmax - box.xmin);
    float* const overlap = overlaps.data();
    float* const largest = best.data();
    int32_t* const matched = match.data();
    const auto number = static_cast<int32_t>(i);
    for (size_t d = 0; d < count; ++d) {
      const float height = std::max(std::min(box.ymax, ymax[d]) - std::max(box.ymin, ymin[d]), 0.0F);
      const float width = std::max(std::min(box.xmax, xmax[d]) - std::max(box.xmin, xmin[d]), 0.0F);
      const float both = height * width;
      const float either = area + areas[d] - both;
      overlap[d] = both == 0 ? 0.0F : both / either;
      // The first box that reaches the threshold is taken at equality, too; later ones must exceed the best.
      const bool better = overlap[d] > largest[d] || (overlap[d] == largest[d] && matched[d] < 0);
      largest[d] = better ? overlap[d] : largest[d];
      matched[d] = better ? number : matched[d];
    }
    const auto own = static_cast<size_t>(std::max_element(overlaps.begin(), overlaps.end()) - overlaps.begin());
    if (forced[own] < 0) forced[own] = number;
  }

  int64_t matches = 0;
  const size_t y = x_first_ ? 1 : 0, x = 1 - y;
  for (size_t d = 0; d < count; ++d) {
    const int32_t number = forced[d] >= 0 ? forced[d] : match[d];
    if (number < 0) continue;
    ++matches;
    const Box& box = boxes[static_cast<size_t>(number)];
    classes[d] = labels[static_cast<size_t>(number)];
    const float* const center = &centers_[4 * d];
    const float height = box.ymax - box.ymin, width = box.xmax - box.xmin;
    const float default_height = center[2] + kEpsilon, default_width = center[3] + kEpsilon;
    float* const offset = offsets + 4 * d;
    offset[y] = (box.ymin + height / 2 - center[0]) / default_height * 10;
    offset[x] = (box.xmin + width / 2 - center[1]) / default_width * 10;
    offset[2 + y] = std::log((height + kEpsilon) / default_height) * 5;
    offset[2 + x] = std::log((width + kEpsilon) / default_width) * 5;
  }
  return matches;
}

at::Tensor DefaultBoxes::decode(const at::Tensor& offsets) const {
  if (offsets.dim() < 2 || offsets.size(-1) != 4 || offsets.size(-2) != size()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "offsets are not those of the default boxes",
                                                          .expected = fmt::format("[..., {}, 4]", size()),
                                                          .actual = fmt::format("{} dimensions", offsets.dim())});
  }
  const at::Tensor values = offsets.to(at::kFloat), defaults = centers_tensor().to(offsets.device());
  const int64_t y = x_first_ ? 1 : 0, x = 1 - y;
  const auto center = [&](int64_t column, int64_t axis) {
    return values.select(-1, column) / 10 * defaults.select(1, axis + 2) + defaults.select(1, axis);
  };
  const auto half = [&](int64_t column, int64_t axis) {
    return (values.select(-1, column + 2) / 5).clamp_max(largest_log_).exp() * defaults.select(1, axis + 2) / 2;
  };
  const at::Tensor cy = center(y, 0), cx = center(x, 1), half_height = half(y, 0), half_width = half(x, 1);
  return at::stack({cy - half_height, cx - half_width, cy + half_height, cx + half_width}, -1);
}

}  // namespace trainyard::data
