// Implements Optimizer::complete_gradients().
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

class Optimizer;

// Completes the gradients of the optimizer's parameters in place: with the loops of optim/cpu in host memory, and with
// ATen's operators, asynchronously, on a device.
void complete_on_host(const Optimizer& optimizer, const StepState& state);
void complete_on_device(const Optimizer& optimizer, const StepState& state);

// Returns a copy of StepState::tensor() whose inverse loss scale is 1.
at::Tensor unscaled_fields(const StepState& state);

}  // namespace trainyard::optim
