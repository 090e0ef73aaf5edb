#include "trainyard/nn/cpu/convolution/convolution_shape.h"

#include <variant>

#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

namespace trainyard::nn::cpu {

ConvolutionShape convolution_shape(const Node& node, const Shape& image, int64_t batch, DataType dtype) {
  const auto& op = std::get<Convolution>(node.op);
  const Padding padding = resolve_padding(op.padding, {image[1], image[2]}, op.kernel, op.stride, op.dilation);
  // The padding ends with the last window, since oneDNN wants sizes that fit exactly.
  const auto after = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t before) {
    return (out - 1) * stride + dilation * (kernel - 1) + 1 - in - before;
  };
  return {.batch = batch,
          .in_channels = image[0],
          .out_channels = op.out_channels,
          .groups = op.groups,
          .in_height = image[1],
          .in_width = image[2],
          .out_height = node.shape[1],
          .out_width = node.shape[2],
          .kernel_height = op.kernel.height,
          .kernel_width = op.kernel.width,
          .stride_height = op.stride.height,
          .stride_width = op.stride.width,
          .dilation_height = op.dilation.height,
          .dilation_width = op.dilation.width,
          .top = padding.top,
          .left = padding.left,
          .bottom = after(image[1], node.shape[1], op.kernel.height, op.stride.height, op.dilation.height, padding.top),
          .right = after(image[2], node.shape[2], op.kernel.width, op.stride.width, op.dilation.width, padding.left),
          .bias = op.bias,
          .dtype = dtype};
}

std::string convolution_name(const ConvolutionShape& s, const ConvolutionKernel& kernel) {
  return fmt::format("conv {}x{}{} {}", s.kernel_height, s.kernel_width,
                     s.groups > 1 ? fmt::format(" groups {}", s.groups) : "", kernel.implementation());
}

void round_image(const ConvolutionShape& s, const at::Tensor& image, void* rounded) {
  at::from_blob(rounded, {s.batch, s.in_channels, s.in_height, s.in_width}, at::kBFloat16).copy_(image);
}

}  // namespace trainyard::nn::cpu
