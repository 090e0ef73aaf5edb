// A foreign module's place in a ParameterSet: what each executor does with a Foreign node.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/foreign_module.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// Makes the module and declares its parameters ("<node>.<name>") and buffers in the context's set. Parameters that want
// no gradient become buffers, so that no optimizer touches them. Tensors of one dimension take no weight decay.
class ForeignBinding {
 public:
  ForeignBinding(const Node& node, const Foreign& op, const BuildContext& context);

  // Runs the module on inputs [N, input...] of any float dtype. Returns [N, output...] of the set's dtype, in which the
  // module runs. The first call makes the module's tensors views of the set, which must be allocated. Throws
  // kInvalidArgument when the module's result has another shape than the node.
  //
  // Frozen parameters want no gradient. The module's buffers are its own affair, frozen or not: a batch norm in it goes
  // on to use and to update its statistics as the module does in training.
  at::Tensor forward(std::span<const at::Tensor> inputs);

  // Returns whether one of the module's parameters is trainable now.
  bool trains() const;

 private:
  struct Variable {
    at::Tensor tensor;  // the module's own
    int index;          // of the parameter or buffer in the set
  };
  void bind();
  void follow_trainable();

  std::string name_;
  std::vector<int64_t> output_shape_;
  BuildContext context_;
  std::shared_ptr<ForeignModule> module_;
  std::vector<Variable> parameters_, buffers_;
  uint64_t trainable_version_ = 0;  // of the set, which the parameters follow
  bool bound_ = false;
};

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
