// The executor that tests trust: each node is plain ATen under autograd, in any float dtype, on any device that ATen
// has. Registered as "reference".
#pragma once

#include <memory>
#include <vector>

#include "trainyard/nn/executor.h"
#include "trainyard/nn/foreign_binding.h"

namespace trainyard::nn {

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(const Graph& graph, const BuildContext& context);

  at::Tensor forward(const at::Tensor& images, const StepRandom& random) override;

 private:
  // A node with what it needs to run.
  struct Layer {
    std::string name;  // with the prefix
    std::vector<ParameterId> parameters;
    std::vector<int> buffers;
    std::vector<at::Tensor> leaves;        // of autograd: views of the set's values
    std::vector<at::Tensor> buffer_views;  // of the set's buffers
    std::unique_ptr<ForeignBinding> foreign;
    bool reuse_input = false;
    std::vector<int> last_uses;  // nodes whose output nobody needs after this one
  };
  void plan_memory();
  void bind();
  at::Tensor run(size_t index, std::vector<at::Tensor>& values, const StepRandom& random);
  void run_observed(size_t index, std::vector<at::Tensor>& values, const StepRandom& random);

  std::vector<Layer> layers_;  // by node id
  bool bound_ = false;
};

}  // namespace trainyard::nn
