#include "trainyard/train/evaluation/image_views.h"

#include <array>
#include <cmath>
#include <limits>

#include <ATen/ops/reflection_pad2d.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "flip", "five_crops", "flip_five_crops", "flip_shift"};
constexpr int kCrops = 5;
constexpr int kShifted = 6;  // views of kFlipShift
constexpr double kLeastProbability = 1e-300;

}  // namespace

bool crops_corners(TestTimeAugmentation augmentation) {
  return augmentation == TestTimeAugmentation::kFiveCrops || augmentation == TestTimeAugmentation::kFlipFiveCrops;
}

int view_count(TestTimeAugmentation augmentation) {
  switch (augmentation) {
    case TestTimeAugmentation::kNone:
      return 1;
    case TestTimeAugmentation::kFlip:
      return 2;
    case TestTimeAugmentation::kFiveCrops:
      return kCrops;
    case TestTimeAugmentation::kFlipFiveCrops:
      return 2 * kCrops;
    case TestTimeAugmentation::kFlipShift:
      return kShifted;
  }
  return 1;
}

std::string_view name_of(TestTimeAugmentation augmentation) {
  return kNames[static_cast<size_t>(augmentation)];
}

namespace {

// Windows are counted in an image that is one pixel larger on each side.
at::Tensor shifted_view(const at::Tensor& images, std::pair<int64_t, int64_t> size, int index) {
  if (images.size(2) < 2 || images.size(3) < 2) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "images are too small to be reflected at their edges",
                                              .where = "test-time augmentation flip_shift",
                                              .expected = "2 or more pixels on each side",
                                              .actual = fmt::format("[{}]", fmt::join(images.sizes(), ", "))});
  }
  constexpr std::array<int64_t, 3> kShifts = {0, -1, 1};
  const int64_t begin = 1 + kShifts[static_cast<size_t>(index / 2)];
  const auto [height, width] = size;
  const at::Tensor window = at::reflection_pad2d(images, {1, 1, 1, 1})
                                .narrow(2, (images.size(2) - height) / 2 + begin, height)
                                .narrow(3, (images.size(3) - width) / 2 + begin, width);
  return (index % 2 == 1 ? window.flip({3}) : window).contiguous(images.suggest_memory_format());
}

}  // namespace

at::Tensor view_of(const at::Tensor& images, std::pair<int64_t, int64_t> size, TestTimeAugmentation augmentation,
                   int index) {
  const auto [height, width] = size;
  const bool corners = crops_corners(augmentation);
  const int64_t least = corners ? 1 : 0;  // pixels of margin
  if (images.dim() != 4 || images.size(2) < height + least || images.size(3) < width + least) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("images are too small for views of {} x {}", height, width),
                 .where = fmt::format("test-time augmentation {}", name_of(augmentation)),
                 .expected = fmt::format("images [N, C, {0} or more, {1} or more]", height + least, width + least),
                 .actual = fmt::format("[{}]", fmt::join(images.sizes(), ", "))});
  }
  if (augmentation == TestTimeAugmentation::kFlipShift) return shifted_view(images, size, index);
  const int64_t rows = images.size(2) - height, columns = images.size(3) - width;  // of margin
  const int crops = corners ? kCrops : 1, crop = index % crops;
  const bool mirrored = index >= crops;
  const bool centre = crop == crops - 1;
  const int64_t top = centre ? rows / 2 : crop / 2 * rows;
  const int64_t left = centre ? columns / 2 : crop % 2 * columns;
  const at::Tensor window = images.narrow(2, top, height).narrow(3, left, width);
  return (mirrored ? window.flip({3}) : window).contiguous(images.suggest_memory_format());
}

void ViewAverage::add(const at::Tensor& logits) {
  const bool weighs_logits = augmentation_ == TestTimeAugmentation::kFlipShift;
  at::Tensor part =
      weighs_logits ? logits.to(at::kDouble).mul(views_ < 2 ? 0.25 : 0.125) : logits.softmax(1, at::kDouble);
  const at::Tensor invalid = logits.isfinite().all(1).logical_not().unsqueeze(1);
  part = part.masked_fill(invalid, std::numeric_limits<double>::quiet_NaN());
  sum_ = views_ == 0 ? part : sum_.add(part);
  ++views_;
}

at::Tensor ViewAverage::result() const {
  if (augmentation_ == TestTimeAugmentation::kFlipShift) return sum_.to(at::kFloat);
  return sum_.div(views_).clamp_min(kLeastProbability).log().to(at::kFloat);
}

}  // namespace trainyard::train
