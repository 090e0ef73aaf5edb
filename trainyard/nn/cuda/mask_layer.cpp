// Dropout and stochastic depth in training: masks drawn on the device from the streams of nn/keep_mask.h.
#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/core/random/random.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/unit_layer.h"

namespace trainyard::nn::cuda {
namespace {

class MaskLayer : public UnitLayer {
 public:
  MaskLayer(const LayerContext& context, const Node& node, double drop, bool whole_samples)
      : context_(context),
        name_hash_(core::stable_hash(context.build.name_prefix + node.name)),
        drop_(drop),
        whole_samples_(whole_samples) {}

  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom& random) override {
    const at::Tensor& x = inputs[0];
    std::vector<int64_t> shape = x.sizes().vec();
    if (whole_samples_) std::fill(shape.begin() + 1, shape.end(), 1);
    const at::Tensor mask = at::empty(shape, x.options());
    keep_mask({.seed = random.seed,
               .name_hash = name_hash_,
               .micro_step = random.micro_step,
               .first_sample = random.first_sample,
               .samples = shape[0],
               .per_sample = mask.numel() / shape[0],
               .drop = drop_,
               .kept = static_cast<float>(1 / (1 - drop_))},
              context_.step.const_data_ptr<int64_t>(), element_of(x.scalar_type()), mask.data_ptr(),
              core::cuda::current_stream());
    return x * mask;
  }

 private:
  const LayerContext& context_;
  const uint64_t name_hash_;
  const double drop_;
  const bool whole_samples_;
};

}  // namespace

std::unique_ptr<UnitLayer> make_mask_layer(const LayerContext& context, const Unit& unit) {
  const Node& node = context.node(unit.head());
  const auto* dropout = std::get_if<Dropout>(&node.op);
  const auto* depth = std::get_if<StochasticDepth>(&node.op);
  const double drop = dropout != nullptr ? dropout->drop : depth != nullptr ? depth->drop : 0.0;
  if (!context.training() || drop == 0) return nullptr;
  return std::make_unique<MaskLayer>(context, node, drop, depth != nullptr);
}

}  // namespace trainyard::nn::cuda
