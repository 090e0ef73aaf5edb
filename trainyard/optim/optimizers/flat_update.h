// The pass over a parameter set's flat blocks that every optimizer makes: gradients are unscaled, decayed and clipped
// (by norms that were measured before), then go through the optimizer's formula, all in registers; each weight,
// gradient and slot is read once and written once. Formulas that are scaled by norms make two passes: one for the
// norms, one for the update.
//
//   flat_update(*this, state, gradients, MomentumFormula<true>{.momentum = 0.9});
//
// On a device, the step's numbers and the count of updates are read by its kernels, and a step with found_inf is a
// select there: the caller never branches on it, nor waits for it. Every element's result, norms included, has the same
// bits on any number of threads: what a thread takes is made of whole parts of fixed size.
#pragma once

#include <cstddef>
#include <functional>

#include <ATen/core/Tensor.h>

#include "trainyard/optim/step/any_formula.h"
#include "trainyard/optim/step/segment_part.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

class Optimizer;

// The formula's slots are the first ones of optimizer.slots(), as many as it has. One that counts updates needs
// optimizer.update_count(), and gets its derived members here. gradients: as for Optimizer::apply().
void flat_update(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients, AnyFormula formula);

// Calls work(part, place of the part) for all parts of the optimizer that train, on the calling thread's intra-op
// threads. Parameters in the host's memory.
void for_each_part(const Optimizer& optimizer, const std::function<void(const SegmentPart&, size_t)>& work);

// Returns infinity where gradients are not clipped.
double clip_of(const Optimizer& optimizer);

}  // namespace trainyard::optim
