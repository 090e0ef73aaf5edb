// Convolutions that divide an image into patches, such as a vision transformer's first one: the window is as large as
// the stride. Each patch becomes a pixel with as many channels as the patch has numbers, and the convolution has a 1x1
// window.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless the input is plain, the windows are disjoint and of at least 64 pixels (oneDNN's own kernels are
// slow there), nothing is padded, and there is a kernel for the 1x1 window. The image is rearranged in scratch at each
// run. There is no gradient of the input.
std::unique_ptr<ConvolutionKernel> make_patch_convolution(const ConvolutionShape& shape,
                                                          const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
