// An observer that also sees the results of each piece of work. With it a training finds the first layer that computes
// NaN. Executors make the views only for such an observer.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn {

class ValueObserver : public NodeObserver {
 public:
  void ran(const NodeRun& /*run*/) override {}

  // Called after ran(run), on the same thread. `values` are outputs in forward; in backward gradients of inputs and, if
  // autograd provides them here, of parameters. They have any float dtype, in the executor's own layout with its
  // padding, which is zero, and are valid during the call. May throw: the step then ends with that error.
  virtual void made(const NodeRun& run, std::span<const at::Tensor> values) = 0;
};

}  // namespace trainyard::nn
