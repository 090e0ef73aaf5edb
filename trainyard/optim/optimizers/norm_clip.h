// Clipping of gradients by their norm: its options, and the factors of gradients.
//
//   kParameter  each parameter's gradient by its own norm (Keras' clipnorm, tf.clip_by_norm)
//   kGlobal     all gradients by the norm of all of them together (Pascanu, Mikolov, Bengio, "On the difficulty of
//               training recurrent neural networks", 2013: Keras' global_clipnorm, tf.clip_by_global_norm, PyTorch's
//               clip_grad_norm_)
//   kAdaptive   each unit's gradient by the norm of its weights (Brock, De, Smith, Simonyan, "High-performance
//               large-scale image recognition without normalization", 2021, section 4). A unit is what one index of a
//               parameter's first dimension names: the weights of one output of a convolution or a linear layer. A
//               parameter of one dimension is one unit.
//
// Clips the reduced gradients of an optimizer's trainable parameters, without the loss scale. The frameworks differ in
// two things, which the rule selects:
//
//   kTensorFlow  gradients of the whole loss, in which coupled weight decay and other regularization are terms, as in
//                tf_cnn_benchmarks and Keras: factor = c / max(norm, c). A global norm that is not finite makes all
//                gradients NaN.
//   kPyTorch     gradients of the data's loss alone; the optimizer adds the regularization afterwards, as after
//                torch.nn.utils.clip_grad_norm_: factor = min(1, c / (norm + 1e-6))
//
// With kAdaptive both rules have the factor of the paper's code, min(1, c * max(|w|, 1e-3) / max(|g|, 1e-6)), and
// differ in the gradient alone; the paper's is kPyTorch's. Decoupled weight decay is clipped by neither.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

enum class NormClipKind { kParameter, kGlobal, kAdaptive };
enum class NormClipRule { kTensorFlow, kPyTorch };

struct NormClip {
  NormClipKind kind = NormClipKind::kGlobal;
  double bound = 1.0;  // c: the largest norm; of kAdaptive the largest ratio of the norms, lambda in the paper
  NormClipRule rule = NormClipRule::kTensorFlow;
  // Patterns of parameters that are not clipped and whose gradients do not count in the global norm. The paper of
  // kAdaptive excludes the last linear layer.
  std::vector<std::string> excluded{};
  void validate() const;  // throws kInvalidArgument
};

// Returns the factor of gradients with this norm, for kParameter and kGlobal.
[[nodiscard]] double clip_factor(const NormClip& clip, double norm);
// Returns the factor of a unit's gradient, for kAdaptive.
[[nodiscard]] double adaptive_clip_factor(double bound, double gradient_norm, double weight_norm);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
