// Convolutions with oneDNN. Only this header's source calls oneDNN's primitives in the CPU plan.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null when oneDNN has no such kernel (Winograd for 1x1, say) or only its slow reference. With `whole` the
// convolution runs on whole blocks (blocked_groups.h); packing is then slower and zeros are multiplied, but oneDNN has
// a kernel more often. Throws kInternal when oneDNN fails.
std::unique_ptr<ConvolutionKernel> make_onednn_convolution(const ConvolutionShape& shape,
                                                           const ConvolutionKernel::Options& options, bool whole);

}  // namespace trainyard::nn::cpu
