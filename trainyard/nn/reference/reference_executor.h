// The executor that tests trust: each node is plain ATen under autograd, in any float dtype, on any device that ATen
// has. Registered as "reference".
#pragma once

#include <memory>
#include <vector>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn {

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(const Graph& graph, const BuildContext& context);

  core::NamedTensors run(const core::NamedTensors& inputs, const StepRandom& random) override;

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

  std::vector<Layer> layers_;  // by node id
};

}  // namespace trainyard::nn
