// Convolutions with Winograd's F(2x2, 3x3) and F(3x3, 3x3) in bfloat16 (winograd_bf16/winograd.h).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns whether our Winograd kernels, these and those of winograd_fp32_convolution.h, can compute it: 3x3 windows
// with stride 1 and at most two rows and columns of padding, one group, maps of whole blocks, no activation but ReLU.
bool fits_winograd(const ConvolutionShape& shape, const ConvolutionKernel::Options& options);

// Returns the channels of whole blocks that hold so many.
int64_t in_whole_blocks(int64_t channels);

// The algorithm kWinograd3 selects F(3x3, 3x3), any other one F(2x2, 3x3). Returns null unless it fits, the maps are
// bfloat16 and the processor has AVX512_BF16.
std::unique_ptr<ConvolutionKernel> make_winograd_bf16_convolution(const ConvolutionShape& shape,
                                                                  const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
