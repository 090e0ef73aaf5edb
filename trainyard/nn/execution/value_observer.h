// An observer that also sees the numbers which each piece of work made. With it a training that became NaN finds the
// layer where that began. Executors make the views only for such an observer.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn {

class ValueObserver : public NodeObserver {
 public:
  void ran(const NodeRun& /*run*/) override {}

  // Called after ran(run), on the same thread. `values` are outputs in forward; in backward gradients of inputs and,
  // where autograd hands them over here, of parameters. They have any float dtype, in the executor's own layout with
  // its padding, which is zero, and are valid during the call. May throw: the step then ends with that error.
  virtual void made(const NodeRun& run, std::span<const at::Tensor> values) = 0;
};

}  // namespace trainyard::nn
