// Where layers put gradients: straight into the ParameterSet's flat block. The first write of a step overwrites, later
// uses of the parameter and later micro-steps add; nothing is cleared in between. When the last use of a parameter in
// the last micro-step has written, the listener hears it: that is where reduction starts while backward still runs.
//
// One sink a replica, used on the thread that runs its backward (autograd's CPU thread is the caller's).
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn {

class GradientSink {
 public:
  using Listener = std::function<void(ParameterId)>;

  explicit GradientSink(ParameterSet& parameters);

  // uses[id] = how often a backward pass writes each parameter; one where it was never set.
  void set_uses(ParameterId id, int uses);
  void set_listener(Listener listener) { listener_ = std::move(listener); }

  // Before the forward of each micro-step: micro_step in [0, micro_steps).
  void begin(int micro_step, int micro_steps);

  // True when the next write of `id` in this step must overwrite (a kernel may then store instead of add).
  bool overwrite(ParameterId id) const;
  // gradient(id) = or += value (any dtype that converts; shape of the parameter), then counts the use. Throws kInternal
  // once the parameter was reported ready: its reduction may have begun. begin() starts the next step.
  void write(ParameterId id, const at::Tensor& value);
  // For kernels that wrote parameters().gradient(id) themselves, obeying overwrite(): counts the use.
  void wrote(ParameterId id);

  // After the last micro-step's backward: parameters that no layer wrote in this step get a zero gradient, and all that
  // were not yet reported are. In other micro-steps it does nothing.
  void finish();

  ParameterSet& parameters() { return *parameters_; }

 private:
  struct State {
    int uses = 1, written = 0;  // in this micro-step
    bool fresh = true;          // not yet written in this step
    bool reported = false;
  };
  State& state(ParameterId id);
  void report(ParameterId id, State& state);

  ParameterSet* parameters_;
  std::vector<State> states_;
  Listener listener_;
  bool last_micro_step_ = true;
};

}  // namespace trainyard::nn
