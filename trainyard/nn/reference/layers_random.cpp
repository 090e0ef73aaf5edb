// Operations with random numbers: each sample has a stream of its own, so masks do not depend on how a global batch is
// split.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "trainyard/nn/execution/keep_mask.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

// Returns [N, per_sample] of 0 and 1 / (1 - drop), with the dtype and device of x.
at::Tensor keep_mask(double drop, int64_t per_sample, const LayerCall& call) {
  const at::Tensor& x = call.x();
  at::Tensor mask = at::empty({x.size(0), per_sample}, at::kFloat);
  fill_keep_mask(mask.data_ptr<float>(), x.size(0), per_sample, drop, 1, call.name, call.random);
  return mask.to(x.options()).mul_(1 / (1 - drop));
}

}  // namespace

at::Tensor run(const Dropout& op, const LayerCall& call) {
  if (!call.training || op.drop == 0) return call.x();
  return call.x() * keep_mask(op.drop, call.x()[0].numel(), call).view(call.x().sizes());
}

at::Tensor run(const StochasticDepth& op, const LayerCall& call) {
  if (!call.training || op.drop == 0) return call.x();
  std::vector<int64_t> shape(static_cast<size_t>(call.x().dim()), 1);
  shape[0] = call.x().size(0);
  return call.x() * keep_mask(op.drop, 1, call).view(shape);
}

}  // namespace trainyard::nn::reference
