// A device's own kernel for the classifier's loss. nn::softmax_cross_entropy (loss.h) uses it for tensors on a device
// whose kind has registered one, and ATen's operators otherwise:
//
//   const core::Registration<DeviceCrossEntropy> kCuda(device_cross_entropies(), "cuda", softmax_cross_entropy);
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/registry.h"

namespace trainyard::nn {

// logits [N, classes] float, labels [N] int64, both on one device -> mean loss [] float, under autograd. An invalid
// label makes the loss NaN: detecting it earlier would wait for the device. smoothing is in [0, 1).
using DeviceCrossEntropy =
    std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels, double smoothing)>;

// Returns the kernels by the device's kind in LibTorch: "cuda" when the CUDA engine is built in.
core::Registry<DeviceCrossEntropy>& device_cross_entropies();

}  // namespace trainyard::nn
