// Binds a custom layer to a ParameterSet, for the Foreign nodes of each executor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/custom_layer.h"

namespace trainyard::nn {

// Makes the layer and declares its parameters ("<node>.<name>") and buffers in the context's set.
class ForeignBinding {
 public:
  ForeignBinding(const Node& node, const Foreign& op, const BuildContext& context);

  // Runs the layer on inputs [N, input...] of any float dtype. Returns [N, output...] of the set's dtype, in which the
  // layer runs. The first call makes the layer's tensors views of the set, which must be allocated. Throws
  // kInvalidArgument when LibTorch rejects the layer's operations, and when its result has another shape than the node.
  //
  // Frozen parameters require no gradient. The layer manages its buffers itself, frozen or not: a batch norm in a
  // module continues to use and update its statistics as in training.
  at::Tensor forward(std::span<const at::Tensor> inputs);

  // Returns whether one of the layer's parameters is trainable now.
  bool trains() const;

 private:
  struct Variable {
    at::Tensor tensor;  // the layer's own
    int index;          // of the parameter or buffer in the set
  };
  void bind();
  at::Tensor run(std::span<const at::Tensor> inputs) const;
  void follow_trainable();

  std::string name_;  // name of the node, with the prefix and the description
  std::vector<int64_t> output_shape_;
  BuildContext context_;
  std::shared_ptr<CustomLayer> layer_;
  std::vector<Variable> parameters_, buffers_;
  uint64_t trainable_version_ = 0;  // version of the set that the parameters correspond to
  bool bound_ = false;
};

}  // namespace trainyard::nn
