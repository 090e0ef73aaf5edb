// The classifier's loss and its accuracy counts. Results stay on the device of the logits. Reading them waits for it,
// so a loop reads them only when it displays them.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

struct CrossEntropyOptions {
  // In [0, 1). Each target is 1 - label_smoothing at the label, plus label_smoothing / classes everywhere: Szegedy et
  // al. 2016, section 7.
  double label_smoothing = 0.0;
  // [classes] of a float type, not negative: the weight of each class in the loss, as in PyTorch's CrossEntropyLoss.
  // The mean over single labels is divided by the sum of the labels' weights, that over mixtures by the number of
  // samples. Undefined: each class has weight 1.
  at::Tensor class_weights{};
  // Throws kInvalidArgument for a number out of range. Functions with these options throw the same.
  void validate() const;
};

// Returns the mean over the batch of -sum(target * weight * log softmax(logits)): a scalar, at least fp32, under
// autograd. logits is [N, classes] of any float type, labels is [N] int64 in [0, classes). Throws kInvalidArgument for
// shapes and dtypes that do not fit. Labels out of range are detected on the CPU only, since elsewhere that would wait
// for the device: call check_labels() before they are moved.
[[nodiscard]] at::Tensor softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                               const CrossEntropyOptions& options = {});

// Returns the same for targets that are mixtures of two labels, as mixup and CutMix make them: `shares` [N], of any
// float type, is the first label's part of the target, in [0, 1], and other_labels [N] int64 has the rest. Smoothing
// applies to the whole target, as in PyTorch's cross_entropy of class probabilities. No dense targets are made. Throws
// as softmax_cross_entropy() does; shares out of range are detected on the CPU only.
[[nodiscard]] at::Tensor mixed_softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                                     const at::Tensor& other_labels, const at::Tensor& shares,
                                                     const CrossEntropyOptions& options = {});

// Returns the mean over all elements of the binary cross-entropy of sigmoid(logits) and targets, both [N, classes],
// where each class is a question of its own and targets are 0 to 1: a scalar, at least fp32, under autograd; PyTorch's
// BCEWithLogitsLoss. Throws kInvalidArgument for shapes and dtypes that do not fit.
[[nodiscard]] at::Tensor sigmoid_cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

// Options of binary_cross_entropy().
struct BinaryCrossEntropyOptions {
  double label_smoothing = 0.0;  // in [0, 1), as in CrossEntropyOptions
  // In [0, 1): targets above it, smoothed and mixed ones, become 1 and all others 0. Unset: they stay as they are.
  std::optional<double> target_threshold{};
  bool sum_classes = false;  // the mean over samples of the sum over classes, instead of the mean over all elements
  // [classes] of a float type, not negative: the weight of each class's question. The mean is not divided by the sum of
  // weights. Undefined: each class has weight 1.
  at::Tensor class_weights{};
  // Throws kInvalidArgument for a number out of range. Functions with these options throw the same.
  void validate() const;
};

// Returns the loss of single labels where each class is a question of its own, of sigmoid(logits) and the smoothed
// label: timm's BinaryCrossEntropy (Wightman, Touvron, Jegou, "ResNet strikes back", 2021, section 3). A scalar, at
// least fp32, under autograd. Takes and throws what softmax_cross_entropy() does.
[[nodiscard]] at::Tensor binary_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                              const BinaryCrossEntropyOptions& options = {});

// Returns the same for targets that are mixtures of two labels, each smoothed by itself, as timm's Mixup makes them.
// Takes and throws what mixed_softmax_cross_entropy() does.
[[nodiscard]] at::Tensor mixed_binary_cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                                    const at::Tensor& other_labels, const at::Tensor& shares,
                                                    const BinaryCrossEntropyOptions& options = {});

// Returns the distance of a student's logits from a teacher's, both [N, classes]: the mean over the batch of T^2
// KL(softmax(teacher / T) || softmax(student / T)), T = temperature > 0; a scalar, at least fp32, under autograd for
// the student. Hinton, Vinyals, Dean, "Distilling the knowledge in a neural network", 2015, section 2; T^2 keeps the
// size of the gradients whatever T is. Throws kInvalidArgument for shapes that differ and for other temperatures.
[[nodiscard]] at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& teacher_logits,
                                           double temperature);

// Throws kInvalidArgument for the first of labels, [N] int64 on the CPU, that is not in [0, classes).
void check_labels(const at::Tensor& labels, int64_t classes);

// Returns how many samples have their label among the k largest logits, as an int64 scalar. As in TensorFlow's
// in_top_k, a label is in when fewer than k classes have a strictly larger logit, so all that tie for the k-th place
// are in. A sample with a logit that is not finite does not count.
[[nodiscard]] at::Tensor top_k_correct(const at::Tensor& logits, const at::Tensor& labels, int64_t k);
// Returns the same for each sample, as bool [N].
[[nodiscard]] at::Tensor top_k_hits(const at::Tensor& logits, const at::Tensor& labels, int64_t k);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
