#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/var.h>
#include <c10/core/MemoryFormat.h>

#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

// Returns the dtype that ATen requires for running statistics with x: fp32 for 16 bits, else x's.
at::ScalarType statistics_dtype(const at::Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

constexpr std::array<int64_t, 3> kPixels{0, 2, 3};

// Returns the tensor itself where its strides are those of contiguous or channels_last layout, also along an axis of
// one element, else a contiguous copy. LibTorch 2.11's backward of a batch norm on a CPU goes by different strides for
// the input and the gradient of the output, and returns wrong numbers, where an axis of one element lets both layouts
// be told from them: [2, 8, 3, 1] with strides (24, 1, 8, 1), as attention leaves several queries.
at::Tensor in_one_layout(const at::Tensor& x) {
  const bool channels_last = x.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  return channels_last && x.is_contiguous(at::MemoryFormat::ChannelsLast) ? x : x.contiguous();
}

}  // namespace

at::Tensor run(const BatchNorm& op, const LayerCall& call) {
  if (call.training && call.trains && call.sync_batch_norm != nullptr) return run_synchronized(op, call);
  const at::Tensor x = call.x().is_cpu() ? in_one_layout(call.x()) : call.x();
  const at::ScalarType dtype = statistics_dtype(x);
  const at::Tensor weight = op.scale ? call.variables[0].to(dtype) : at::Tensor();
  const at::Tensor bias = call.variables[op.scale ? 1 : 0].to(dtype);
  const at::Tensor mean = call.buffers[0].to(dtype), variance = call.buffers[1].to(dtype);

  // A norm that is frozen as a whole is a constant map: the network above it trains on the outputs that inference will
  // have, too.
  const bool batch_statistics = call.training && call.trains;

  // ATen's running variance is the unbiased one: of one value a channel it would be 0 / 0, which counts as 0 here.
  const bool own_statistics = batch_statistics && (op.biased_running_variance || x.numel() == x.size(1));
  const at::Tensor running_mean = own_statistics ? at::Tensor() : mean;
  const at::Tensor running_variance = own_statistics ? at::Tensor() : variance;
  auto [y, batch_mean, inverse_deviation] = at::native_batch_norm(x, weight, bias, running_mean, running_variance,
                                                                  batch_statistics, 1 - op.decay, op.epsilon);
  if (x.is_cpu() && y.requires_grad()) {
    y.register_hook([](const at::Tensor& gradient) { return gradient.defined() ? in_one_layout(gradient) : gradient; });
  }
  if (!batch_statistics) return y;

  const at::NoGradGuard no_grad;
  if (own_statistics) {
    const double factor = running_variance_factor(op, static_cast<double>(x.numel() / x.size(1)));
    mean.mul_(op.decay).add_(batch_mean, 1 - op.decay);
    variance.mul_(op.decay).add_(at::var(x.to(dtype), kPixels, /*unbiased=*/false), (1 - op.decay) * factor);
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
