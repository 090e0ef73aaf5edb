// Convolutions by Strassen's products of matrices (nn/cpu/convolution/strassen/arguments.h): for constant weights, and
// for weights that a training changes where the windows are 1x1 and the maps float.
#pragma once

#include <memory>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// Returns null unless it is a forward, or the gradient of an input, of one group, with whole blocks of channels that
// can be cut in halves, and wide enough that fewer products can pay. 3x3 windows with stride 1 are left to Winograd's
// algorithm; kernels of training are for 1x1 windows without strides or zeros around the image, in float. Forwards add,
// and have every activation.
std::unique_ptr<ConvolutionKernel> make_strassen_convolution(const ConvolutionShape& shape,
                                                             const ConvolutionKernel::Options& options);

}  // namespace trainyard::nn::cpu
