// Operations with random numbers: each sample has a stream of its own, so masks do not depend on how a global batch is
// split.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "trainyard/core/random.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

// [N, per_sample] of 0 and 1 / (1 - drop), of the dtype and device of x.
at::Tensor keep_mask(double drop, int64_t per_sample, const LayerCall& call) {
  const at::Tensor& x = call.x();
  at::Tensor mask = at::empty({x.size(0), per_sample}, at::kFloat);
  float* const data = mask.data_ptr<float>();
  at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      core::RandomStream stream(call.random.seed, call.name,
                                {static_cast<uint64_t>(call.random.step), static_cast<uint64_t>(call.random.micro_step),
                                 static_cast<uint64_t>(call.random.first_sample + sample)});
      for (int64_t i = 0; i < per_sample; ++i) {
        data[sample * per_sample + i] = stream.uniform() < drop ? 0.0f : 1.0f;
      }
    }
  });
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
