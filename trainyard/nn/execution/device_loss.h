// A device's own kernel for the classifier's loss. nn::softmax_cross_entropy (loss.h) uses it for tensors on a device
// whose kind has registered one, ATen's operators elsewhere:
//
//   const core::Registration<DeviceCrossEntropy> kCuda(device_cross_entropies(), "cuda", softmax_cross_entropy);
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/registry.h"

namespace trainyard::nn {

// logits [N, classes] float, labels [N] int64, both on one device -> mean loss [] float, under autograd. A label that
// is no class makes the loss not a number: finding it sooner would wait for the device. smoothing is in [0, 1).
using DeviceCrossEntropy =
    std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels, double smoothing)>;

// By the device's kind as LibTorch writes it: "cuda" where the CUDA engine is built in.
core::Registry<DeviceCrossEntropy>& device_cross_entropies();

}  // namespace trainyard::nn
