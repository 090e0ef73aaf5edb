// The classifier's loss and its accuracy counts. Results stay on the device of the logits. Reading them waits for it,
// so a loop reads them only when it displays them.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

struct CrossEntropyOptions {
  // In [0, 1). Each target is 1 - label_smoothing at the label, plus label_smoothing / classes everywhere: Szegedy et
  // al. 2016, section 7.
  double label_smoothing = 0.0;
};

// Returns the mean over the batch of -sum(target * log softmax(logits)): a scalar, at least fp32, under autograd.
// logits is [N, classes] of any float type, labels is [N] int64 in [0, classes). Throws kInvalidArgument for shapes and
// dtypes that do not fit. Labels out of range are found on the CPU only, since elsewhere that would wait for the
// device: call check_labels() before they are moved.
at::Tensor softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                 const CrossEntropyOptions& options = {});

// Throws kInvalidArgument for the first of labels, [N] int64 on the CPU, that is not in [0, classes).
void check_labels(const at::Tensor& labels, int64_t classes);

// Returns how many samples have their label among the k largest logits, as an int64 scalar. As in TensorFlow's
// in_top_k, a label is in when fewer than k classes have a strictly larger logit, so all that tie at the k-th place are
// in. A sample with a logit that is not finite has none in.
at::Tensor top_k_correct(const at::Tensor& logits, const at::Tensor& labels, int64_t k);
// Returns which samples these are, as bool [N].
at::Tensor top_k_hits(const at::Tensor& logits, const at::Tensor& labels, int64_t k);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
