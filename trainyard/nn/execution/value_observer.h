// An observer that also sees the numbers which each piece of work made: how a training that became NaN finds the layer
// that it began with. Executors make the views only for such an observer.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn {

class ValueObserver : public NodeObserver {
 public:
  void ran(const NodeRun& /*run*/) override {}

  // After ran(run), on the same thread. `values`: outputs in forward, gradients of inputs (and, where autograd hands
  // them over here, of parameters) in backward. Any float dtype, in the executor's own layout with its padding, which
  // is zero. Valid during the call. May throw: the step then ends with that error.
  virtual void made(const NodeRun& run, std::span<const at::Tensor> values) = 0;
};

}  // namespace trainyard::nn
