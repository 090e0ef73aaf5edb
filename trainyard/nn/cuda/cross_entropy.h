// The classifier's loss by a kernel of our own: what nn::softmax_cross_entropy does on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard::nn::cuda {

// logits [N, classes] float, labels [N] int64, on one GPU -> [] float under autograd. A label that is no class makes
// the loss not a number: finding it sooner would wait for the device.
at::Tensor softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing);

}  // namespace trainyard::nn::cuda
