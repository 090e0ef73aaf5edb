// Where layers put gradients: straight into the ParameterSet's flat block. The first write of a step overwrites, later
// uses of the parameter and later micro-steps add; nothing is cleared in between.
//
// One sink a replica, used on the thread that runs its backward (autograd's CPU thread is the caller's).
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/parameter_set.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

class GradientSink {
 public:
  explicit GradientSink(ParameterSet& parameters);

  // uses[id] = how often a backward pass writes each parameter; one where it was never set.
  void set_uses(ParameterId id, int uses);

  // Before the forward of each micro-step: micro_step in [0, micro_steps).
  void begin(int micro_step, int micro_steps);

  // True when the next write of `id` in this step must overwrite (a kernel may then store instead of add).
  bool overwrite(ParameterId id) const;
  // gradient(id) = or += value (any dtype that converts; shape of the parameter), then counts the use. Throws kInternal
  // when all uses of this micro-step are counted already, and after the last micro-step's finish(): the gradient is
  // complete then, and others may read it.
  void write(ParameterId id, const at::Tensor& value);
  // For kernels that wrote parameters().gradient(id) themselves, obeying overwrite(): counts the use.
  void wrote(ParameterId id);

  // After the last micro-step's backward: completes all gradients. Parameters that no layer wrote in this step, such as
  // frozen ones, get a zero gradient. In other micro-steps it does nothing.
  void finish();

  // Calls `listener` with each parameter whose gradient is complete, so that others may read it from then on: in the
  // last micro-step, at the last of its uses, and in finish() for those that were written less often, in the order of
  // the segments. Exactly once a step for each parameter, on the thread that wrote it. Empty: nobody hears. Call it
  // between steps.
  void set_listener(std::function<void(ParameterId id)> listener) { listener_ = std::move(listener); }

  ParameterSet& parameters() { return *parameters_; }

 private:
  struct State {
    int uses = 1, written = 0;  // in this micro-step
    bool fresh = true;          // not yet written in this step
    bool told = false;          // the listener knows that it is complete
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
TRAINYARD_EXPORT_END
