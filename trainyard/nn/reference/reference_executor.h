// The executor that tests trust: each node is plain ATen under autograd, in any float dtype, on any device that ATen
// has. Registered as "reference".
//
// A quantized network (BuildContext::quantization) is computed by definition: outputs that have a scale are rounded to
// the numbers of 8 bits that it stands for, layers with weights in 8 bits are computed in double of rounded weights.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/quantized_nodes.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn {

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(const Graph& graph, const BuildContext& context);

  core::NamedTensors run(const core::NamedTensors& inputs, const StepRandom& random) override;

 protected:
  // What a derived executor computes otherwise. begin_run() is called before the first node of a run, enter_input()
  // with each input in the executor's dtype and layout, which it may replace, and compute() for each other node.
  virtual void begin_run() {}
  virtual void enter_input(const Node& /*input*/, at::Tensor& /*value*/) {}
  virtual at::Tensor compute(const Node& node, std::span<const at::Tensor> inputs, bool reuse_input,
                             const StepRandom& random);
  BoundLayer& layer(int node) { return *layers_[static_cast<size_t>(node)].bound; }

 private:
  struct Layer {
    std::unique_ptr<BoundLayer> bound;
    bool reuse_input = false;
    std::vector<int> last_uses;  // nodes whose output is not needed after this one
  };
  void plan_memory();
  void enter(const Node& input, const at::Tensor& given, std::vector<at::Tensor>& values);
  at::Tensor run_node(size_t index, std::vector<at::Tensor>& values, const StepRandom& random);
  void run_observed(size_t index, std::vector<at::Tensor>& values, const StepRandom& random);
  // Computes a layer whose weights have scales.
  at::Tensor run_in_8_bits(size_t index, const std::vector<at::Tensor>& inputs, const StepRandom& random);
  // Rounds the node's output where it has a scale, and notes which samples have NaN or infinity there.
  void round_output(size_t index, at::Tensor& value);

  std::vector<Layer> layers_;  // by node id
  std::optional<QuantizedNodes> quantized_;
  at::Tensor
      non_finite_;  // [N] bool: whether rounding hid NaN or infinity of the sample in this run; undefined: nowhere
};

}  // namespace trainyard::nn
