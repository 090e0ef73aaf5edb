#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/native_batch_norm.h>

#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

// Returns the dtype that ATen wants for running statistics beside x: fp32 for 16 bits, else x's.
at::ScalarType statistics_dtype(const at::Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

}  // namespace

at::Tensor run(const BatchNorm& op, const LayerCall& call) {
  if (call.training && call.trains && call.statistics != nullptr) return run_synchronized(op, call);
  const at::Tensor& x = call.x();
  const at::ScalarType dtype = statistics_dtype(x);
  const at::Tensor weight = op.scale ? call.variables[0].to(dtype) : at::Tensor();
  const at::Tensor bias = call.variables[op.scale ? 1 : 0].to(dtype);
  const at::Tensor mean = call.buffers[0].to(dtype), variance = call.buffers[1].to(dtype);

  // A norm that is frozen as a whole is a constant map: the network above it trains on the outputs that inference will
  // have, too.
  const bool batch_statistics = call.training && call.trains;

  // One value a channel has no unbiased variance: ATen would make it 0 / 0. Like TensorFlow we count it as 0.
  const bool single = batch_statistics && x.numel() == x.size(1);
  auto [y, batch_mean, inverse_deviation] =
      single ? at::native_batch_norm(x, weight, bias, {}, {}, true, 1 - op.decay, op.epsilon)
             : at::native_batch_norm(x, weight, bias, mean, variance, batch_statistics, 1 - op.decay, op.epsilon);
  if (!batch_statistics) return y;

  const at::NoGradGuard no_grad;
  if (single) {
    mean.mul_(op.decay).add_(batch_mean, 1 - op.decay);
    variance.mul_(op.decay);
  }
  // Where `dtype` is not the set's, ATen updated a copy.
  if (!mean.is_same(call.buffers[0])) call.buffers[0].copy_(mean);
  if (!variance.is_same(call.buffers[1])) call.buffers[1].copy_(variance);
  return y;
}

at::Tensor run(const LocalResponseNorm& op, const LayerCall& call) {
  const at::Tensor& x = call.x();
  const at::Tensor squares = at::constant_pad_nd(x * x, {0, 0, 0, 0, op.radius, op.radius});
  at::Tensor sum = squares.narrow(1, 0, x.size(1));
  for (int64_t offset = 1; offset <= 2 * op.radius; ++offset) sum = sum + squares.narrow(1, offset, x.size(1));
  return x / (op.bias + op.alpha * sum).pow(op.beta);
}

}  // namespace trainyard::nn::reference
