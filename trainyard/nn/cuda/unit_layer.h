// Runs one fused unit of a graph (nn/graph/fusion.h) in the CUDA executor, under autograd. Gradients of parameters go
// directly to the sink.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cuda/kernels/kernels.h"
#include "trainyard/nn/cuda/weights.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn::cuda {

// The common data of an executor's layers. Must outlive them.
struct LayerContext {
  const Graph& graph;
  const BuildContext& build;
  Weights& weights;
  // Makes autograd call the backward when no input requires a gradient; nullopt: no gradients are needed. Autograd
  // functions take optional tensors as std::optional, because they ask for the device, which an undefined tensor does
  // not have.
  std::optional<at::Tensor> anchor;
  at::Tensor step;  // [] int64 on the device: step of the current forward

  bool training() const { return build.mode == Mode::kTraining; }
  bool gradients() const { return anchor.has_value(); }
  const Node& node(int id) const { return graph.nodes[static_cast<size_t>(id)]; }
  // Returns the node's parameter of that index; the set must be allocated.
  ParameterId parameter(const Node& node, size_t index) const;
  at::Tensor buffer(const Node& node, size_t index) const;
  // Returns where a kernel writes the gradient of `id`, or null when it is not needed; whether the kernel must add to
  // it; and records that it was written.
  float* gradient(ParameterId id) const;
  bool adds(ParameterId id) const { return build.gradients != nullptr && !build.gradients->overwrite(id); }
  void wrote(ParameterId id) const {
    if (build.gradients != nullptr) build.gradients->wrote(id);
  }
};

class UnitLayer {
 public:
  virtual ~UnitLayer() = default;
  // Runs the unit. `inputs` are those of unit_inputs(), [N, ...] of the context's dtype, in any layout.
  virtual at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom& random) = 0;
  // Does the same for an output that several units read. Returns it twice: autograd gives the layer a gradient for
  // each, which its backward adds up while it reads them, where autograd itself would take a pass over both. The second
  // is undefined where the layer has no such backward: all units then read the first.
  virtual std::array<at::Tensor, 2> run_for_readers(std::span<const at::Tensor> inputs, const StepRandom& random) {
    return {run(inputs, random), at::Tensor()};
  }
};

// Returns the nodes outside of `unit` whose outputs its nodes read, in order: for a batch norm its input, then the
// residual.
std::vector<int> unit_inputs(const Graph& graph, const Unit& unit);

// Makes the layer of `unit`, by its head: batch norm, convolution, linear layer, sum with an activation, max pooling,
// masks, attention. Units without a kernel here run through ATen, with one layer in `plain` for each node. Declares its
// weights in context.weights. `context` and `plain` must outlive it.
std::unique_ptr<UnitLayer> make_unit_layer(const LayerContext& context, const Unit& unit,
                                           std::vector<BoundLayer*> plain);

// The parts of make_unit_layer(). Each returns null for another kind of unit.
std::unique_ptr<UnitLayer> make_norm_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_convolution_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_linear_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_sum_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_max_pool_layer(const LayerContext& context, const Unit& unit);
std::unique_ptr<UnitLayer> make_mask_layer(const LayerContext& context, const Unit& unit);
// `bound` is the attention's node, whose bias is a leaf of autograd.
std::unique_ptr<UnitLayer> make_attention_layer(const LayerContext& context, const Unit& unit, BoundLayer& bound);

// Returns a Layer where the unit's head is an Op, and null elsewhere.
template <typename Layer, typename Op>
std::unique_ptr<UnitLayer> make_layer_of(const LayerContext& context, const Unit& unit) {
  if (!std::holds_alternative<Op>(context.node(unit.head()).op)) return nullptr;
  return std::make_unique<Layer>(context, unit);
}

Nonlinearity nonlinearity_of(const LayerContext& context, const Unit& unit);

}  // namespace trainyard::nn::cuda
