// Operations that are one or two calls of ATen.

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {

at::Tensor run(const Activation& op, const LayerCall& call) {
  at::Tensor x = call.x();
  switch (op.function) {
    case Activation::Function::kRelu:
      return call.reuse_input ? x.relu_() : at::relu(x);
    case Activation::Function::kRelu6:
      return at::hardtanh(x, 0, 6);
    case Activation::Function::kSilu:
      return at::silu(x);
    case Activation::Function::kHardSwish:
      return at::hardswish(x);
    case Activation::Function::kHardSigmoid:
      return at::hardsigmoid(x);
    case Activation::Function::kSigmoid:
      return x.sigmoid();
    case Activation::Function::kGelu:
      return at::gelu(x);
    case Activation::Function::kTanh:
      return x.tanh();
  }
  throw core::Error(core::ErrorCode::kInternal, {.problem = "unknown activation", .where = call.node.name});
}

at::Tensor run(const GlobalAveragePool&, const LayerCall& call) {
  return call.x().mean(at::IntArrayRef{2, 3});
}

at::Tensor run(const AdaptiveAveragePool& op, const LayerCall& call) {
  return at::adaptive_avg_pool2d(call.x(), {op.size.height, op.size.width});
}

at::Tensor run(const Linear&, const LayerCall& call) {
  return at::linear(call.x(), call.variable(0), call.variable(1));
}

at::Tensor run(const Flatten&, const LayerCall& call) {
  return call.x().flatten(1);
}

at::Tensor run(const Add&, const LayerCall& call) {
  at::Tensor first = call.x();
  at::Tensor sum = call.reuse_input ? first.add_(call.inputs[1]) : first + call.inputs[1];
  for (size_t i = 2; i < call.inputs.size(); ++i) sum.add_(call.inputs[i]);
  return sum;
}

at::Tensor run(const Multiply&, const LayerCall& call) {
  const at::Tensor& scale = call.inputs[1];
  return call.x() * (scale.dim() == call.x().dim() ? scale : scale.unsqueeze(2).unsqueeze(3));
}

at::Tensor run(const Concat&, const LayerCall& call) {
  return at::cat(std::vector<at::Tensor>(call.inputs.begin(), call.inputs.end()), 1);
}

at::Tensor run(const ChannelPad& op, const LayerCall& call) {
  return at::constant_pad_nd(call.x(), {0, 0, 0, 0, op.before, op.after});
}

at::Tensor run(const SpatialPad& op, const LayerCall& call) {
  return at::constant_pad_nd(call.x(), {op.left, op.right, op.top, op.bottom});
}

at::Tensor run(const ChannelSlice& op, const LayerCall& call) {
  return call.x().narrow(1, op.begin, op.count);
}

at::Tensor run(const ChannelShuffle& op, const LayerCall& call) {
  return at::channel_shuffle(call.x(), op.groups);
}

}  // namespace trainyard::nn::reference
