// Convolution on oneDNN, the only file (with its source) of the CPU plan that calls oneDNN's primitives.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Null when oneDNN has no such kernel (Winograd for 1x1, say) or only its slow reference. `whole`: run as one on whole
// blocks (whole_groups.h); its packing is slower and it multiplies zeros, but oneDNN has a kernel more often.
std::unique_ptr<ConvolutionKernel> make_onednn_convolution(const ConvolutionShape& shape,
                                                           const ConvolutionKernel::Options& options, bool whole);

}  // namespace trainyard::nn::cpu
