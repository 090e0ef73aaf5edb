// The loss of a detector that predicts an offset and the scores of all classes for each of D default boxes, as SSD
// does: Liu et al., "SSD: single shot multibox detector", 2016, equations 1 to 3, in tf_cnn_benchmarks' form.
//
//   MultiboxParts parts;
//   const at::Tensor loss = multibox_loss(output, target_offsets, classes, num_matched, &parts);
//
// Class 0 is the background; a box is positive when its class is larger. For each image, with M = num_matched:
//   box loss   = sum over positive boxes of smooth_l1(offset - target) / M, where smooth_l1(x) is x^2 / 2 up to |x| = 1
//                and |x| - 1/2 beyond, summed over the four numbers of an offset;
//   class loss = sum of the cross entropies of the positive boxes and of the hardest ones / M. The hardest are the
//                min(3 M, D) boxes of the largest cross entropy, where that of a positive box counts as 0 and the first
//                of equal ones comes first. Where fewer negatives than that have a loss above 0, the rest are positive
//                boxes, which then count twice, as in the original.
// The loss is the mean over images of both. An image with M = 0 adds nothing; the original divides by 0 there.
//
// Results are at least fp32, whatever the input's dtype, and do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// The two summands of a multibox loss, detached scalars, for display.
struct MultiboxParts {
  at::Tensor class_loss{}, box_loss{};
};

// Returns the loss of `output` [N, D, 4 + C] of any float type, offsets first: a scalar under autograd. target_offsets
// is [N, D, 4] of a float type, classes [N, D] int64 in [0, C), num_matched [N] int64, not negative. `parts`, where not
// null, gets the summands. Throws kInvalidArgument for shapes and dtypes that do not fit and, for tensors on the CPU,
// classes and counts out of range.
[[nodiscard]] at::Tensor multibox_loss(const at::Tensor& output, const at::Tensor& target_offsets,
                                       const at::Tensor& classes, const at::Tensor& num_matched,
                                       MultiboxParts* parts = nullptr);

// Returns the same for offsets [N, D, 4] and logits [N, D, C] that are tensors of their own, of one dtype.
[[nodiscard]] at::Tensor multibox_loss(const at::Tensor& offsets, const at::Tensor& logits,
                                       const at::Tensor& target_offsets, const at::Tensor& classes,
                                       const at::Tensor& num_matched, MultiboxParts* parts = nullptr);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
