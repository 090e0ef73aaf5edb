// Convolutions of numbers that are not finite: slow, on memory of their own, and NaN goes nowhere that PyTorch does not
// send it (ConvolutionKernel::Options::exact, group_by_group.h).
#pragma once

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// All but the activation of a forward kernel with these options. weight: plain. bias: [out_channels] or null. Pad lanes
// of `output` may become NaN.
void convolve_exactly(const ConvolutionShape& shape, const ConvolutionKernel::Options& options, const float* weight,
                      const float* bias, const void* source, void* output);

// weight_gradient: plain.
void exact_weight_gradient(const ConvolutionShape& shape, const void* source, const void* output_gradient,
                           float* weight_gradient);

}  // namespace trainyard::nn::cpu
