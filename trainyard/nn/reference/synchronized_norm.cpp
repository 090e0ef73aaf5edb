// Batch norm with the statistics of all replicas' batches: its formula in double, and autograd's derivatives of it. Two
// sums are made over the replicas, one behind the other, and so are their gradients in the backward pass.
#include <cstdint>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainyard/nn/execution/sync_batch_norm.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

// The sum over all replicas, on each of them. What they lower together is the sum of their costs, so that the gradient
// of a replica's term is the sum of those of all results.
struct SumOverReplicas : torch::autograd::Function<SumOverReplicas> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& terms,
                            SyncBatchNorm* exchange) {
    context->saved_data["exchange"] = reinterpret_cast<int64_t>(exchange);
    at::Tensor sum = terms.clone(at::MemoryFormat::Contiguous);
    exchange->all_reduce_sum(sum);
    return sum;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto* const exchange = reinterpret_cast<SyncBatchNorm*>(context->saved_data["exchange"].toInt());
    at::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    exchange->all_reduce_sum(sum);
    return {sum, at::Tensor()};
  }
};

}  // namespace

at::Tensor run_synchronized(const BatchNorm& op, const LayerCall& call) {
  const at::Tensor& given = call.x();
  const at::Tensor x = given.to(at::kDouble);
  const std::vector<int64_t> pixels{0, 2, 3}, per_channel{1, x.size(1), 1, 1};
  at::Tensor count = at::full({1}, x.numel() / x.size(1), at::kDouble);
  call.sync_batch_norm->all_reduce_sum(count);
  const at::Tensor mean = SumOverReplicas::apply(x.sum(pixels), call.sync_batch_norm) / count;
  const at::Tensor centred = x - mean.view(per_channel);
  const at::Tensor variance = SumOverReplicas::apply((centred * centred).sum(pixels), call.sync_batch_norm) / count;
  at::Tensor y = centred / (variance + op.epsilon).sqrt().view(per_channel);
  if (op.scale) y = y * call.variables[0].to(at::kDouble).view(per_channel);
  y = y + call.variables[op.scale ? 1 : 0].to(at::kDouble).view(per_channel);
  at::Tensor result = y.to(given.scalar_type());

  const at::NoGradGuard no_grad;
  call.buffers[0].mul_(op.decay).add_(mean, 1 - op.decay);
  call.buffers[1].mul_(op.decay).add_(variance, (1 - op.decay) * running_variance_factor(op, count.item<double>()));
  return result;
}

}  // namespace trainyard::nn::reference
