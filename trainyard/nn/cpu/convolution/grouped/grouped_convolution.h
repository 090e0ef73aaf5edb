// The convolutions of our own kernels (nn/cpu/convolution/grouped/): any shape, in either dtype, with float weights.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns whether our kernels multiply no zeros: groups have as many channels on both sides, fewer than a block and
// dividing it.
bool fills_lanes(const ConvolutionShape& shape);

// Returns null for Winograd, plain inputs, activations other than ReLU, and a shape that does not fit together.
std::unique_ptr<ConvolutionKernel> make_grouped_convolution(const ConvolutionShape& shape,
                                                            const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
