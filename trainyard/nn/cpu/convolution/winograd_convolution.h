// Convolutions by Winograd's F(2x2, 3x3) in bfloat16 (winograd/winograd.h).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless this is possible: 3x3 windows with stride 1 and at most two rows and columns of padding, one
// group, bfloat16 maps of whole blocks on a processor with AVX512_BF16, no activation but ReLU.
std::unique_ptr<ConvolutionKernel> make_winograd_convolution(const ConvolutionShape& shape,
                                                             const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
