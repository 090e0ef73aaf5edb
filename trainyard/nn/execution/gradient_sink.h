// Receives the gradients of layers: writes them directly into the ParameterSet's flat block. The first write of a step
// overwrites, later uses of the parameter and later micro-steps add; nothing is cleared in between.
//
// There is one sink per replica, used on the thread that runs its backward (autograd's CPU thread is the caller's).
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn {

class GradientSink {
 public:
  explicit GradientSink(ParameterSet& parameters);

  // Sets how often a backward pass writes a parameter; 1 by default.
  void set_uses(ParameterId id, int uses);

  // Call it before the forward of each micro-step, with micro_step in [0, micro_steps).
  void begin(int micro_step, int micro_steps);

  // Returns true when the next write of `id` in this step must overwrite (a kernel may then store instead of add).
  [[nodiscard]] bool overwrite(ParameterId id) const;
  // Sets gradient(id), or adds `value` to it (any dtype that converts; shape of the parameter), and counts the use.
  // Throws kInternal when all uses of this micro-step are counted already, and after the last micro-step's finish():
  // the gradient is complete then, and others may read it.
  void write(ParameterId id, const at::Tensor& value);
  // Counts the use, for kernels that have written parameters().gradient(id) themselves according to overwrite().
  void wrote(ParameterId id);

  // Completes all gradients. Call it after the last micro-step's backward; in other micro-steps it does nothing.
  // Parameters that no layer has written in this step, such as frozen ones, get a zero gradient.
  void finish();

  // Calls `listener` with each parameter whose gradient is complete, so that others may read it from then on: in the
  // last micro-step, at the last of its uses, and in finish() for those that were written less often, in the order of
  // the segments. Exactly once per step for each parameter, on the thread that wrote it. An empty listener removes it.
  // Call it between steps.
  void set_listener(std::function<void(ParameterId id)> listener) { listener_ = std::move(listener); }

  ParameterSet& parameters() { return *parameters_; }

 private:
  struct State {
    int uses = 1, written = 0;  // in this micro-step
    bool fresh = true;          // not yet written in this step
    bool told = false;          // the listener has been called
  };
  State& state(ParameterId id);
  void require_unfinished(ParameterId id);
  void tell(ParameterId id);

  ParameterSet* parameters_;
  std::function<void(ParameterId)> listener_;
  std::vector<State> states_;
  bool last_micro_step_ = true;
};

}  // namespace trainyard::nn
