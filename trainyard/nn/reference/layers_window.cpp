// Convolution, pooling and upsampling: operations with a window, stride and padding. ATen pads symmetrically only, and
// by no more than half a pooling window, so all other padding is made explicit first.

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "trainyard/nn/execution/libtorch_convolution.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

Padding resolved(const Padding& padding, const at::Tensor& x, Size2d kernel, Size2d stride, Size2d dilation = {}) {
  return resolve_padding(padding, {x.size(2), x.size(3)}, kernel, stride, dilation);
}

bool is_symmetric(const Padding& padding) {
  return padding.top == padding.bottom && padding.left == padding.right;
}

at::Tensor padded(const at::Tensor& x, const Padding& padding, double value) {
  if (padding == Padding::valid()) return x;
  return at::constant_pad_nd(x, {padding.left, padding.right, padding.top, padding.bottom}, value);
}

// Returns the sum over each window of an image that is already padded.
at::Tensor window_sum(const at::Tensor& x, const Pool& op) {
  return at::avg_pool2d(x, {op.kernel.height, op.kernel.width}, {op.stride.height, op.stride.width}, {0, 0},
                        /*ceil_mode=*/false, /*count_include_pad=*/true, /*divisor_override=*/1);
}

at::Tensor max_pool(const Pool& op, const at::Tensor& x, const Padding& padding) {
  return at::max_pool2d(padded(x, padding, -std::numeric_limits<double>::infinity()),
                        {op.kernel.height, op.kernel.width}, {op.stride.height, op.stride.width});
}

// `padding` is the operation's. `reach` has, in addition, the pixels that ceil_mode's windows hang over the edge.
at::Tensor average_pool(const Pool& op, const at::Tensor& x, const Padding& padding, const Padding& reach) {
  const at::Tensor sums = window_sum(padded(x, reach, 0), op);
  // How many pixels count in each window: the same sum over an image of ones.
  at::Tensor ones = at::ones({1, 1, x.size(2), x.size(3)}, x.options());
  if (op.count_padding) ones = padded(ones, padding, 1);
  const Padding rest = op.count_padding ? Padding{Padding::Kind::kExplicit, 0, reach.bottom - padding.bottom, 0,
                                                  reach.right - padding.right}
                                        : reach;
  return sums / window_sum(padded(ones, rest, 0), op);
}

}  // namespace

at::Tensor run(const Convolution& op, const LayerCall& call) {
  Padding padding = resolved(op.padding, call.x(), op.kernel, op.stride, op.dilation);
  at::Tensor x = call.x();
  if (!is_symmetric(padding)) {
    x = padded(x, padding, 0);
    padding = Padding::valid();
  }
  at::Tensor weight = call.variable(0);
  if (weight.dim() == 2) weight = weight.view({weight.size(0), weight.size(1), 1, 1});
  return libtorch_convolution(op, {padding.top, padding.left}, x, weight, call.variable(1));
}

at::Tensor run(const Pool& op, const LayerCall& call) {
  const at::Tensor& x = call.x();
  const Padding padding = resolved(op.padding, x, op.kernel, op.stride);
  const bool plain = is_symmetric(padding) && !op.ceil_mode && 2 * padding.top <= op.kernel.height &&
                     2 * padding.left <= op.kernel.width;
  const std::array<int64_t, 2> kernel{op.kernel.height, op.kernel.width}, stride{op.stride.height, op.stride.width},
      pad{padding.top, padding.left};
  if (plain && op.kind == Pool::Kind::kMax) return at::max_pool2d(x, kernel, stride, pad);
  // On GPUs the gradient of padded average pooling in channels_last is wrong in LibTorch 2.11 (PyTorch issue 188344):
  // there the padding is made of numbers.
  const bool right_gradient = !x.is_cuda() || padding == Padding::valid() || (pad[0] == 0 && pad[1] == 0);
  if (plain && right_gradient) return at::avg_pool2d(x, kernel, stride, pad, /*ceil_mode=*/false, op.count_padding);

  Padding reach = padding;
  const auto hang = [](int64_t out, int64_t s, int64_t k, int64_t in, int64_t before, int64_t after) {
    return std::max(after, (out - 1) * s + k - in - before);
  };
  reach.bottom = hang(call.node.shape[1], stride[0], kernel[0], x.size(2), padding.top, padding.bottom);
  reach.right = hang(call.node.shape[2], stride[1], kernel[1], x.size(3), padding.left, padding.right);
  return op.kind == Pool::Kind::kMax ? max_pool(op, x, reach) : average_pool(op, x, padding, reach);
}

at::Tensor run(const TransposedConvolution& op, const LayerCall& call) {
  const auto both = [](Size2d size) { return std::vector<int64_t>{size.height, size.width}; };
  const auto convolve = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::conv_transpose2d(x, weight, bias, both(op.stride), both(op.padding), both(op.output_padding), op.groups,
                                both(op.dilation));
  };
  const at::Tensor &x = call.x(), &bias = call.variable(1);
  if (!x.is_cpu() || x.scalar_type() != at::kBFloat16) return convolve(x, call.variable(0), bias);
  // In bf16 on processors with AVX512_BF16 and without AMX, LibTorch's oneDNN makes places of the output NaN that an
  // infinite pixel does not reach, where there is output_padding.
  return convolve(x.to(at::kFloat), call.variable(0).to(at::kFloat), bias.defined() ? bias.to(at::kFloat) : bias)
      .to(at::kBFloat16);
}

namespace {

// [factor * size, size]: the weights of pixels in each row of a bilinear enlargement (graph/ops.h).
at::Tensor bilinear_weights(int64_t size, int64_t factor, const at::TensorOptions& options) {
  const at::TensorOptions floats = options.dtype(at::kFloat);
  const at::Tensor place =
      ((at::arange(factor * size, floats) + 0.5) / static_cast<double>(factor) - 0.5).clamp_min(0).unsqueeze(1);
  const at::Tensor low = place.floor(), above = place - low, pixels = at::arange(size, floats).unsqueeze(0);
  const at::Tensor high = (low + 1).clamp_max(static_cast<double>(size - 1));
  return ((pixels == low) * (1 - above) + (pixels == high) * above).to(options.dtype());
}

}  // namespace

at::Tensor run(const Upsample& op, const LayerCall& call) {
  const at::Tensor& x = call.x();
  const std::vector<int64_t> size{op.factor * x.size(2), op.factor * x.size(3)};
  if (op.kind == Upsample::Kind::kNearest) return at::upsample_nearest2d(x, size);
  if (x.is_cuda() && at::globalContext().deterministicCuDNN()) {
    // LibTorch's backward adds up with atomics there; products of matrices do not.
    const at::Tensor columns = bilinear_weights(x.size(3), op.factor, x.options());
    return at::matmul(bilinear_weights(x.size(2), op.factor, x.options()), at::matmul(x, columns.t()));
  }
  return at::upsample_bilinear2d(x, size, /*align_corners=*/false);
}

}  // namespace trainyard::nn::reference
