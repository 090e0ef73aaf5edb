// Convolves one group after the other, slowly, on separate maps. For numbers that are not finite: kernels that mix
// groups (ConvolutionKernel::mixes_groups) turn them into NaN in other groups. Throws kInternal when a group has no
// kernel.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns a tensor of `count` bytes, at least one: memory for slow paths, which the plan's own does not include.
at::Tensor byte_memory(int64_t count);

// Computes the output. `weight` is plain; `bias` is [out_channels] or null; `source` and `output` are maps. With `sum`
// adds to `output`.
void convolve_groups(const ConvolutionShape& shape, bool sum, const float* weight, const float* bias,
                     const void* source, void* output);

// Computes the gradient of the input, a map. `weight` is plain.
void convolve_groups_backward_data(const ConvolutionShape& shape, const float* weight, const void* output_gradient,
                                   void* source_gradient);

}  // namespace trainyard::nn::cpu
