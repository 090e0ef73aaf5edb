// The convolutions of our own kernels (nn/cpu/convolution/grouped/): any shape, in either dtype, with float weights.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns whether our kernels multiply no zeros: groups have the same number of channels on both sides, which is less
// than a block and divides it.
bool fills_lanes(const ConvolutionShape& shape);

// Returns null for Winograd, plain inputs, activations other than ReLU, and an invalid shape.
std::unique_ptr<ConvolutionKernel> make_grouped_convolution(const ConvolutionShape& shape,
                                                            const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
