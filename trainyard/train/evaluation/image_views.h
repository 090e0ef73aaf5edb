// The views of images that test-time augmentation takes (evaluator.h), and their average.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

// Returns how many views there are: 1, 2, 5 or 10.
[[nodiscard]] int view_count(TestTimeAugmentation augmentation);
// Returns "none", "flip", "five_crops" or "flip_five_crops".
[[nodiscard]] std::string_view name_of(TestTimeAugmentation augmentation);

// Returns view `index` of images [N, C, H, W], in [0, view_count()): [N, C, height, width]. Crops come in the order top
// left, top right, bottom left, bottom right, centre, the mirrored ones after all others. The centre begins at half of
// the margin, rounded down. Throws kInvalidArgument for images that are smaller, and for five crops of images that are
// not larger on both sides, whose views would be the same.
at::Tensor view_of(const at::Tensor& images, std::pair<int64_t, int64_t> size, TestTimeAugmentation augmentation,
                   int index);

// Averages the probabilities that a model assigns to the views of a batch.
class ViewAverage {
 public:
  // Adds the logits of a view, [N, classes].
  void add(const at::Tensor& logits);
  // Returns the logarithm of the mean probabilities, [N, classes] fp32, whose softmax is that mean. A probability below
  // 1e-300 counts as 1e-300. Images with a logit of a view that is not finite are NaN.
  at::Tensor log_mean() const;

 private:
  at::Tensor sum_;  // of probabilities, [N, classes] double
  int views_ = 0;
};

}  // namespace trainyard::train
