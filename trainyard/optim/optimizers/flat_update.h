// The pass of every optimizer over a parameter set's flat blocks: gradients are unscaled, decayed and clipped (by norms
// that were measured before), then go through the optimizer's formula, all in registers; each weight, gradient and slot
// is read once and written once. Formulas that are scaled by norms make two passes: one for the norms, one for the
// update.
//
//   flat_update(*this, state, gradients, MomentumFormula<true>{.momentum = 0.9});
//
// On a device, its kernels read the step's numbers and the count of updates, and skip a step with found_inf by a
// select: the caller neither branches on it nor waits for it. Every element's result, norms included, has the same bits
// on any number of threads, because threads process whole parts of fixed size.
#pragma once

#include <cstddef>
#include <functional>

#include <ATen/core/Tensor.h>

#include "trainyard/optim/step/any_formula.h"
#include "trainyard/optim/step/segment_part.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

class Optimizer;

// The formula's slots are the first ones of optimizer.slots(). A formula that counts updates needs
// optimizer.update_count(), and its derived members are set here. `gradients` is as for Optimizer::apply().
void flat_update(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients, AnyFormula formula);

// Calls work(part, index of the part) for all trainable parts within optimizer.part(), on the calling thread's intra-op
// threads. For parameters in host memory.
void for_each_part(const Optimizer& optimizer, const std::function<void(const SegmentPart&, size_t)>& work);

// Returns the bound of gradient clipping, infinity when gradients are not clipped.
double clip_of(const Optimizer& optimizer);

}  // namespace trainyard::optim
