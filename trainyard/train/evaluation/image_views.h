// The views of images that test-time augmentation takes (evaluator.h), and their average.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

// Returns whether the views are cut out of images that are larger than the model's.
[[nodiscard]] bool crops_corners(TestTimeAugmentation augmentation);
// Returns how many views there are: 1, 2, 5, 6 or 10.
[[nodiscard]] int view_count(TestTimeAugmentation augmentation);
// Returns "none", "flip", "five_crops", "flip_five_crops" or "flip_shift".
[[nodiscard]] std::string_view name_of(TestTimeAugmentation augmentation);

// Returns view `index` of images [N, C, H, W], in [0, view_count()): [N, C, height, width]. Crops come in the order top
// left, top right, bottom left, bottom right, centre, the mirrored ones after all others. With kFlipShift: the centre,
// its mirror, the window one pixel above and left of the centre, its mirror, the one below and right, its mirror. The
// centre begins at half of the margin, rounded down. Throws kInvalidArgument for images that are smaller, for five
// crops of images that are not larger on both sides, whose views would be the same, and for shifts of images with a
// side of one pixel.
at::Tensor view_of(const at::Tensor& images, std::pair<int64_t, int64_t> size, TestTimeAugmentation augmentation,
                   int index);

// Averages what a model says of the views of a batch.
class ViewAverage {
 public:
  explicit ViewAverage(TestTimeAugmentation augmentation) : augmentation_(augmentation) {}
  // Adds the logits of the next view, [N, classes].
  void add(const at::Tensor& logits);
  // Returns logits [N, classes] fp32 after all views: the logarithm of the mean probabilities, whose softmax is that
  // mean, or with kFlipShift the weighted mean of the logits. A probability below 1e-300 counts as 1e-300. Images with
  // a logit of a view that is not finite are NaN.
  at::Tensor result() const;

 private:
  TestTimeAugmentation augmentation_;
  at::Tensor sum_;  // of probabilities, or of weighted logits, [N, classes] double
  int views_ = 0;
};

}  // namespace trainyard::train
