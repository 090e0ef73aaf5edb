// A convolution one group after the other, slowly, on maps of its own: for numbers that are not finite, of which
// kernels that mix groups (ConvolutionKernel::mixes_groups) make NaN in other groups.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns [count] bytes of memory, at least one, for what such a slow way holds besides the plan's.
at::Tensor byte_memory(int64_t count);

// weight: plain. bias: [out_channels] or null. source, output: maps; `sum`: adds to what `output` holds.
void convolve_groups(const ConvolutionShape& shape, bool sum, const float* weight, const float* bias,
                     const void* source, void* output);

void convolve_groups_backward_data(const ConvolutionShape& shape, const float* weight, const void* output_gradient,
                                   void* source_gradient);

}  // namespace trainyard::nn::cpu
