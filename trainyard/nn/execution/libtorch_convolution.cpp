#include "trainyard/nn/execution/libtorch_convolution.h"

#include <optional>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "trainyard/nn/execution/unreached_weights.h"

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

// Returns the tensor, weights or their gradient, with zeros where no window meets a pixel of x, and itself where there
// are no such places. The gradient of the result has zeros there, too, whatever is given to it.
at::Tensor without_unreached(const Pair& stride, const Pair& dilation, const Pair& padding, const at::Tensor& x,
                             const at::Tensor& weights) {
  if (!x.is_cpu() || !weights.defined()) return weights;
  const auto axis = [&](size_t i) {
    WindowAxis a{.in = x.size(static_cast<int64_t>(i) + 2),
                 .kernel = weights.size(static_cast<int64_t>(i) + 2),
                 .stride = stride[i],
                 .dilation = dilation[i],
                 .before = padding[i]};
    a.out = (a.in + 2 * a.before - a.dilation * (a.kernel - 1) - 1) / a.stride + 1;
    return a;
  };
  const UnreachedWeights unreached(axis(0), axis(1));
  if (unreached.empty()) return weights;
  at::Tensor mask = at::zeros({weights.size(2), weights.size(3)}, at::kBool);
  for (const int64_t place : unreached.places()) mask.data_ptr<bool>()[place] = true;
  return at::masked_fill(weights, mask, 0);
}

// Returns x in memory that continues with zeros, where the gradient of its convolution's weights reads past its end:
// the third fault. Autograd follows.
at::Tensor with_zeros_behind(const Convolution& op, const at::Tensor& x) {
  if (!x.is_cpu() || x.scalar_type() != at::kBFloat16 || x.size(1) != 1) return x;
  const int64_t zeros = op.stride.width + op.dilation.width * op.kernel.width + 2 * kLargestBlock;
  return at::constant_pad_nd(x.contiguous().view({-1}), {0, zeros}).narrow(0, 0, x.numel()).view(x.sizes());
}

ConvolutionGradients backward(const Convolution& op, const Pair& stride, const Pair& padding,
                              const at::Tensor& output_gradient, const at::Tensor& x, const at::Tensor& weight,
                              bool wants_input, bool wants_weight) {
  const auto gradients = at::convolution_backward(
      output_gradient, wants_weight ? with_zeros_behind(op, x) : x, weight, c10::nullopt, stride, padding,
      pair(op.dilation), /*transposed=*/false, kNone, op.groups, {wants_input, wants_weight, false});
  return {std::get<0>(gradients), without_unreached(stride, pair(op.dilation), padding, x, std::get<1>(gradients))};
}

}  // namespace

bool libtorch_may_compute(const Convolution& op, int64_t in_channels, std::array<int64_t, 2> padding) {
  return op.kernel != Size2d(1) || op.stride == Size2d(1) || padding != kNone ||
         in_channels / op.groups >= kLargestBlock;
}

at::Tensor libtorch_convolution(const Convolution& op, std::array<int64_t, 2> padding, const at::Tensor& x,
                                const at::Tensor& weight, const at::Tensor& bias) {
  const bool thin = must_thin(op, padding, x);
  const at::Tensor source = thin ? thinned(x, op.stride) : x;
  const Pair stride = thin ? kOne : pair(op.stride), dilation = pair(op.dilation);
  // Autograd's gradient of the weights then goes through the mask.
  const bool wants_weight = at::GradMode::is_enabled() && weight.requires_grad();
  const at::Tensor reached = wants_weight ? without_unreached(stride, dilation, padding, source, weight) : weight;
  return at::convolution(wants_weight ? with_zeros_behind(op, source) : source, reached, bias, stride, padding,
                         dilation, /*transposed=*/false, kNone, op.groups);
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
