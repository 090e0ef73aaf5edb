// Convolutions of numbers that are not finite. They are slow, allocate memory of their own, and give NaN only where
// PyTorch does (ConvolutionKernel::Options::exact, group_by_group.h). They throw kInternal when there is no exact
// kernel.
#pragma once

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Computes a forward with these options, except for the activation. `weight` is plain; `bias` is [out_channels] or
// null. Pad lanes of `output` may become NaN.
void convolve_exactly(const ConvolutionShape& shape, const ConvolutionKernel::Options& options, const float* weight,
                      const float* bias, const void* source, void* output);

// Writes the gradient of the weights, which is plain.
void exact_weight_gradient(const ConvolutionShape& shape, const void* source, const void* output_gradient,
                           float* weight_gradient);

}  // namespace trainyard::nn::cpu
