// One fused unit of a graph (nn/fusion.h) as the CUDA executor runs it, under autograd. Gradients of parameters go
// straight to the sink.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cuda/kernels/kernels.h"
#include "trainyard/nn/cuda/weights.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn::cuda {

// What the layers of one executor share. Outlives them.
struct LayerContext {
  const Graph& graph;
  const BuildContext& build;
  Weights& weights;
  // Makes autograd ask for the backward where no input wants a gradient; none: no gradients are wanted. Functions of
  // autograd take what may be missing as optional: an undefined tensor has no device, which they ask for.
  std::optional<at::Tensor> anchor;
  at::Tensor step;  // [] int64 on the device: of the forward that runs

  bool training() const { return build.mode == Mode::kTraining; }
  bool gradients() const { return anchor.has_value(); }
  const Node& node(int id) const { return graph.nodes[static_cast<size_t>(id)]; }
  // Of the node's parameter of that index; the set is allocated.
  ParameterId parameter(const Node& node, size_t index) const;
  at::Tensor buffer(const Node& node, size_t index) const;
  // Where a kernel writes the gradient of `id`, null: nobody wants it; whether it adds to what is there; and that it
  // did.
  float* gradient(ParameterId id) const;
  bool adds(ParameterId id) const { return build.gradients != nullptr && !build.gradients->overwrite(id); }
  void wrote(ParameterId id) const {
    if (build.gradients != nullptr) build.gradients->wrote(id);
  }
};

class UnitLayer {
 public:
  virtual ~UnitLayer() = default;
  // Inputs: what unit_inputs() names; [N, ...] of the context's dtype, in any layout.
  virtual at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom& random) = 0;
};

// The nodes outside of `unit` whose outputs its nodes read, in their order: of a batch norm its input, then the
// residual.
std::vector<int> unit_inputs(const Graph& graph, const Unit& unit);

// The layer of `unit`, by its head: batch norm, convolution, linear layer, sum with an activation, max pooling, masks,
// attention.
// What has no kernel here is run by `plain`, one for each node of the unit, through ATen. Declares its weights in
// context.weights. `context` and `plain` outlive it.
std::unique_ptr<UnitLayer> make_unit_layer(const LayerContext& context, const Unit& unit,
                                           std::vector<BoundLayer*> plain);

// The parts of make_unit_layer. Null: none of theirs.
std::unique_ptr<UnitLayer> make_norm_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_convolution_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_linear_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_sum_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_max_pool_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_mask_layer(const LayerContext& context, const Unit& unit);
// `bound`: the attention's node, whose bias is a leaf of autograd.
std::unique_ptr<UnitLayer> make_attention_layer(const LayerContext& context, const Unit& unit, BoundLayer& bound);

Nonlinearity nonlinearity_of(const LayerContext& context, const Unit& unit);

}  // namespace trainyard::nn::cuda
