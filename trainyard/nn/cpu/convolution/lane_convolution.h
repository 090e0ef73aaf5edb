// The convolutions of our own kernels (kernels/lane_convolution.cpp): any shape, in either dtype, with float weights.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Whether groups are so many channels, equal on both sides and below a block, that our kernels multiply no zeros.
bool fills_lanes(const ConvolutionShape& shape);

// Null for Winograd, plain inputs, activations but ReLU, and a shape that does not fit together.
std::unique_ptr<ConvolutionKernel> make_lane_convolution(const ConvolutionShape& shape,
                                                         const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
