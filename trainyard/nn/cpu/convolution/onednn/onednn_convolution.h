// Convolution on oneDNN, the only file (with its source) of the CPU plan that calls oneDNN's primitives.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null when oneDNN has no such kernel (Winograd for 1x1, say) or only its slow reference. `whole`: the
// convolution runs as one on whole blocks (blocked_groups.h); packing is then slower and zeros are multiplied, but
// oneDNN has a kernel more often. Throws kInternal where oneDNN fails.
std::unique_ptr<ConvolutionKernel> make_onednn_convolution(const ConvolutionShape& shape,
                                                           const ConvolutionKernel::Options& options, bool whole);

}  // namespace trainyard::nn::cpu
