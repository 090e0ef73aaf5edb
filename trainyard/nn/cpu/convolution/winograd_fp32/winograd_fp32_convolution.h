// Convolutions with Winograd's F(4x4, 3x3) and F(2x2, 3x3) in float (nn/cpu/simd/winograd_fp32_arguments.h).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// The algorithm kWinograd2 selects F(2x2, 3x3), any other one F(4x4, 3x3). Returns null unless the maps are float and
// fits_winograd() (winograd_bf16_convolution.h).
std::unique_ptr<ConvolutionKernel> make_winograd_fp32_convolution(const ConvolutionShape& shape,
                                                                  const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
