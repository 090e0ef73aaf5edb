// Convolutions with 1x1 windows in float (nn/cpu/convolution/pointwise/arguments.h).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless the maps are float and blocked, and the windows 1x1 with stride 1, without padding, in one group.
// Forward kernels add, and have ReLU and ReLU6.
std::unique_ptr<ConvolutionKernel> make_pointwise_convolution(const ConvolutionShape& shape,
                                                              const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
