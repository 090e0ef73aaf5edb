// The gradient of weights in bfloat16, for any window (pixel_pairs.h).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless the direction is that of weights, the maps are bfloat16 and blocked, in one group, and the
// processor has AVX512_BF16.
std::unique_ptr<ConvolutionKernel> make_pixel_pairs_convolution(const ConvolutionShape& shape,
                                                                const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
