#include "trainyard/train/evaluation/image_views.h"

#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

constexpr std::array<std::string_view, 4> kNames = {"none", "flip", "five_crops", "flip_five_crops"};
constexpr int kCrops = 5;
constexpr double kLeastProbability = 1e-300;

bool crops_corners(TestTimeAugmentation augmentation) {
  return augmentation == TestTimeAugmentation::kFiveCrops || augmentation == TestTimeAugmentation::kFlipFiveCrops;
}

}  // namespace

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
  }
  return 1;
}

std::string_view name_of(TestTimeAugmentation augmentation) {
  return kNames[static_cast<size_t>(augmentation)];
}

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
  at::Tensor probabilities = logits.softmax(1, at::kDouble);
  const at::Tensor invalid = logits.isfinite().all(1).logical_not().unsqueeze(1);
  probabilities = probabilities.masked_fill(invalid, std::numeric_limits<double>::quiet_NaN());
  sum_ = views_ == 0 ? probabilities : sum_.add(probabilities);
  ++views_;
}

at::Tensor ViewAverage::log_mean() const {
  return sum_.div(views_).clamp_min(kLeastProbability).log().to(at::kFloat);
}

}  // namespace trainyard::train
