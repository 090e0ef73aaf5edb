// Convolves one group after the other, slowly, on maps of its own. For numbers that are not finite: kernels that mix
// groups (ConvolutionKernel::mixes_groups) turn them into NaN in other groups. Throws kInternal where a group has no
// kernel.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns a tensor of `count` bytes, at least one: memory for slow paths, which the plan's own does not include.
at::Tensor byte_memory(int64_t count);

// Computes the output. weight: plain. bias: [out_channels] or null. source, output: maps. `sum`: adds to what `output`
// holds.
void convolve_groups(const ConvolutionShape& shape, bool sum, const float* weight, const float* bias,
                     const void* source, void* output);

// Computes the gradient of the input, a map. weight: plain.
void convolve_groups_backward_data(const ConvolutionShape& shape, const float* weight, const void* output_gradient,
                                   void* source_gradient);

}  // namespace trainyard::nn::cpu
