// Calls LibTorch's convolutions, and avoids three faults of its oneDNN. The second one, uninitialized gradients of
// weights, is described in unreached_weights.h. The third one: with AVX512_BF16 the gradient of weights of a single
// input channel multiplies pixels in pairs, and takes the second one of the last pair from behind the image's end,
// times zero: NaN there makes all gradients NaN. The first one:
//
// oneDNN computes a 1x1 convolution with a stride by first copying the needed pixels into scratch memory. In
// channels_last, its gradient of the weights steps through that memory by blocks of 8 channels on AVX2 and 16 on
// AVX-512, though the memory has room for the image's own channels only (jit_avx2_1x1_convolution.cpp of oneDNN 3.10,
// which is in LibTorch 2.11, and its sibling for AVX-512, which needs several threads to fail). With fewer channels it
// writes past the end and reads uninitialized memory.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/ops.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// Returns false for the convolutions for which LibTorch accesses memory out of bounds on some processor: those with a
// 1x1 kernel, a stride, no padding and fewer than 16 input channels in a group. The answer does not depend on
// processor, layout or dtype, so that all machines behave the same. `padding` is the rows and columns added at each
// side.
[[nodiscard]] bool libtorch_may_compute(const Convolution& op, int64_t in_channels, std::array<int64_t, 2> padding);

// Returns at::convolution of x [N, C, H, W] with weight [out, C / groups, height, width] and bias [out] (undefined for
// none), with autograd when that is on. Convolutions that LibTorch must not compute on a CPU are computed without a
// stride, on the pixels that the stride selects, which gives the same sums. On a CPU, weights that meet no pixel get a
// gradient of zero here, whatever LibTorch computes. `op` gives stride, dilation and groups.
[[nodiscard]] at::Tensor libtorch_convolution(const Convolution& op, std::array<int64_t, 2> padding,
                                              const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

struct ConvolutionGradients {
  at::Tensor input{}, weight{};  // undefined when not requested
};
// Returns the gradients of the same convolution for `output_gradient` [N, out, H', W'].
[[nodiscard]] ConvolutionGradients libtorch_convolution_backward(const Convolution& op, std::array<int64_t, 2> padding,
                                                                 const at::Tensor& output_gradient, const at::Tensor& x,
                                                                 const at::Tensor& weight, bool wants_input,
                                                                 bool wants_weight);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
