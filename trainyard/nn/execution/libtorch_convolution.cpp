#include "trainyard/nn/execution/libtorch_convolution.h"

#include <optional>
#include <tuple>

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros_like.h>

namespace trainyard::nn {
namespace {

using Pair = std::array<int64_t, 2>;

constexpr int64_t kLargestBlock = 16;  // channels: oneDNN's on AVX-512
constexpr Pair kNone{0, 0}, kOne{1, 1};

Pair pair(const Size2d& size) {
  return {size.height, size.width};
}

bool must_thin(const Convolution& op, const Pair& padding, const at::Tensor& x) {
  return x.is_cpu() && !libtorch_may_compute(op, x.size(1), padding);
}

// The pixels that a 1x1 kernel with this stride sees; a view.
at::Tensor thinned(const at::Tensor& x, const Size2d& stride) {
  return x.slice(2, 0, std::nullopt, stride.height).slice(3, 0, std::nullopt, stride.width);
}

ConvolutionGradients backward(const Convolution& op, const Pair& stride, const Pair& padding,
                              const at::Tensor& output_gradient, const at::Tensor& x, const at::Tensor& weight,
                              bool wants_input, bool wants_weight) {
  const auto gradients =
      at::convolution_backward(output_gradient, x, weight, c10::nullopt, stride, padding, pair(op.dilation),
                               /*transposed=*/false, kNone, op.groups, {wants_input, wants_weight, false});
  return {std::get<0>(gradients), std::get<1>(gradients)};
}

}  // namespace

bool libtorch_may_compute(const Convolution& op, int64_t in_channels, std::array<int64_t, 2> padding) {
  return op.kernel != Size2d(1) || op.stride == Size2d(1) || padding != kNone ||
         in_channels / op.groups >= kLargestBlock;
}

at::Tensor libtorch_convolution(const Convolution& op, std::array<int64_t, 2> padding, const at::Tensor& x,
                                const at::Tensor& weight, const at::Tensor& bias) {
  const bool thin = must_thin(op, padding, x);
  return at::convolution(thin ? thinned(x, op.stride) : x, weight, bias, thin ? kOne : pair(op.stride), padding,
                         pair(op.dilation), /*transposed=*/false, kNone, op.groups);
}

ConvolutionGradients libtorch_convolution_backward(const Convolution& op, std::array<int64_t, 2> padding,
                                                   const at::Tensor& output_gradient, const at::Tensor& x,
                                                   const at::Tensor& weight, bool wants_input, bool wants_weight) {
  if (!must_thin(op, padding, x)) {
    return backward(op, pair(op.stride), padding, output_gradient, x, weight, wants_input, wants_weight);
  }
  ConvolutionGradients gradients =
      backward(op, kOne, padding, output_gradient, thinned(x, op.stride), weight, wants_input, wants_weight);
  if (!wants_input) return gradients;
  at::Tensor whole = at::zeros_like(x);
  thinned(whole, op.stride).copy_(gradients.input);
  gradients.input = whole;
  return gradients;
}

}  // namespace trainyard::nn
