// Convolutions by LibTorch's own oneDNN, which is newer than the one that the CPU plan links and uses AMX in more ways.
// Maps are copied to channels_last and back, at each run.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless maps are in bfloat16, the padding is the same on opposite sides, there is no addition and no
// activation, and LibTorch computes the convolution correctly on every processor (nn::libtorch_may_compute()). Unlike
// the other kernels' gradients of weights, this one's are rounded to bfloat16 once, as PyTorch's are under autocast.
std::unique_ptr<ConvolutionKernel> make_libtorch_convolution(const ConvolutionShape& shape,
                                                             const ConvolutionKernel::Options& options);

// Returns whether choose_convolution() measures it: with AMX, and in bfloat16. Elsewhere oneDNN 2.6 has the same
// kernels, without copies.
bool libtorch_by_processor(const ConvolutionShape& shape, bool amx);

}  // namespace trainyard::nn::cpu
