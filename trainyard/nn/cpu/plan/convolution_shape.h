// What the steps of training's and of frozen convolutions have in common.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn::cpu {

// `image`: the logical shape of the convolution's input.
ConvolutionShape convolution_shape(const Node& node, const Shape& image, int64_t batch, DataType dtype);

// "conv 3x3 jit:avx512_common"
std::string convolution_name(const ConvolutionShape& s, const ConvolutionKernel& kernel);

// The plan's input in 16 bits, plain. image: [N, C, H, W] float.
void round_image(const ConvolutionShape& s, const at::Tensor& image, void* rounded);

}  // namespace trainyard::nn::cpu
