// A node that runs through ATen: its variables as leaves of autograd, its buffers, its custom layer. The reference
// executor runs all nodes in this way, the CPU plan those without a kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/foreign_binding.h"

namespace trainyard::nn {

namespace reference {
struct LayerCall;
}

class BoundLayer {
 public:
  // Declares the node's parameters and buffers in the context's set. Both outlive the layer.
  BoundLayer(const Node& node, const BuildContext& context);

  // Runs the node. inputs: [N, ...] of one dtype. Gradients of variables go to the context's sink. `reuse_input` says
  // that the first input is not needed elsewhere, so its memory may be used for the result. The first call binds to the
  // set, which must be allocated.
  at::Tensor run(std::span<const at::Tensor> inputs, bool reuse_input, const StepRandom& random);
  // Does the same with another formula for the node's operation.
  using Formula = std::function<at::Tensor(const reference::LayerCall& call)>;
  at::Tensor run_as(const Formula& formula, std::span<const at::Tensor> inputs, const StepRandom& random);

  // Returns whether one of the node's parameters, those of a custom layer included, is trainable now.
  bool trains() const;

 private:
  void bind();
  // Makes autograd leave out the gradients of frozen parameters, and only those.
  void follow_trainable();
  // Returns the arguments of a formula. Binds to the set first if that has not been done.
  reference::LayerCall call(std::span<const at::Tensor> inputs, bool reuse_input, const StepRandom& random);

  const Node& node_;
  const BuildContext& context_;
  std::string name_;  // with the prefix
  std::vector<ParameterId> parameters_;
  std::vector<int> buffers_;
  std::vector<at::Tensor> leaves_;        // views of the set's values
  std::vector<at::Tensor> buffer_views_;  // of the set's buffers
  std::unique_ptr<ForeignBinding> foreign_;
  uint64_t trainable_version_ = 0;  // version of the set that leaves_ correspond to
  bool bound_ = false;
};

}  // namespace trainyard::nn
