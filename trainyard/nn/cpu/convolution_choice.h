// Which algorithm a convolution runs with: direct, or Winograd where that is faster (fp32, 3x3, AVX-512).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution.h"

namespace trainyard::nn::cpu {

// The kernel to use; null when oneDNN has none but its reference.
std::unique_ptr<ConvolutionKernel> choose_convolution(const ConvolutionShape& shape,
                                                      ConvolutionKernel::Options options);

}  // namespace trainyard::nn::cpu
