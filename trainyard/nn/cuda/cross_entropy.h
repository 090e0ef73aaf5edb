// The classifier's loss with a kernel of our own, registered in device_cross_entropies() as "cuda".
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard::nn::cuda {

// A DeviceCrossEntropy (nn/execution/device_loss.h) on one GPU.
at::Tensor softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing);

}  // namespace trainyard::nn::cuda
