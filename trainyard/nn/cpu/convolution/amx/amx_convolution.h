// Convolutions with the processor's matrix unit in bfloat16 (amx/amx.h).
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless this is possible: one group, bfloat16 on a processor with AMX (has_amx()), no activation but
// ReLU; for plain images windows of at most 64 numbers per row, without dilation.
std::unique_ptr<ConvolutionKernel> make_amx_convolution(const ConvolutionShape& shape,
                                                        const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
