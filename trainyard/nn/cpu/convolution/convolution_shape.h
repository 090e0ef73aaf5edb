// The common part of the convolution steps in training and with frozen parameters.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn::cpu {

// Returns the shape of a convolution whose input has the logical shape `image`, [C, H, W].
ConvolutionShape convolution_shape(const Node& node, const Shape& image, int64_t batch, DataType dtype);

// Returns a name for messages, such as "conv 3x3 jit:avx512_common".
std::string convolution_name(const ConvolutionShape& s, const ConvolutionKernel& kernel);

// Writes the plan's input, [N, C, H, W] float, to `rounded` as contiguous bfloat16.
void round_image(const ConvolutionShape& s, const at::Tensor& image, void* rounded);

}  // namespace trainyard::nn::cpu
