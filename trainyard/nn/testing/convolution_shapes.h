// Shapes of convolutions for tests and benchmarks.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

// What the last window does not reach is no padding.
inline ConvolutionShape sized(ConvolutionShape s) {
  const auto out = [](int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after) {
    return (in + before + after - dilation * (kernel - 1) - 1) / stride + 1;
  };
  s.out_height = out(s.in_height, s.kernel_height, s.stride_height, s.dilation_height, s.top, s.bottom);
  s.out_width = out(s.in_width, s.kernel_width, s.stride_width, s.dilation_width, s.left, s.right);
  s.bottom = (s.out_height - 1) * s.stride_height + s.dilation_height * (s.kernel_height - 1) + 1 - s.in_height - s.top;
  s.right = (s.out_width - 1) * s.stride_width + s.dilation_width * (s.kernel_width - 1) + 1 - s.in_width - s.left;
  return s;
}

inline ConvolutionShape square(int64_t batch, int64_t in, int64_t out, int64_t height, int64_t width, int64_t kernel,
                               int64_t stride, int64_t padding) {
  return sized({.batch = batch,
                .in_channels = in,
                .out_channels = out,
                .in_height = height,
                .in_width = width,
                .kernel_height = kernel,
                .kernel_width = kernel,
                .stride_height = stride,
                .stride_width = stride,
                .top = padding,
                .left = padding,
                .bottom = padding,
                .right = padding});
}

inline ConvolutionShape in_bfloats(ConvolutionShape shape) {
  shape.dtype = DataType::kBfloat16;
  return shape;
}

}  // namespace trainyard::nn::cpu
