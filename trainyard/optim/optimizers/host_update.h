// flat_update() for parameters in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/any_formula.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

// Elements [begin, begin + count) of a segment, by its index in ParameterSet::segments(), and its sums of squares, from
// measure_on_host().
struct MeasuredPart {
  int64_t begin = 0, count = 0;
  size_t segment = 0;
  double weight_squares = 0;    // 0 when the values were not read
  double gradient_squares = 0;  // without the loss scale; 0 when the segment is frozen
};
// Sums the squares of `gradients` (with_regularization: those of the whole loss) and, with with_weights, of the
// weights. The bits do not depend on the number of threads.
void measure_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                     std::span<MeasuredPart> parts, bool with_regularization, bool with_weights);

// What update_on_host() updates.
struct HostSelection {
  const std::vector<bool>* segments = nullptr;  // by index in ParameterSet::segments(); null: all
  at::Tensor values{};  // [total]: takes the weights' place; not defined: the weights themselves
};

// Implements flat_update() with the loops of optim/cpu. A step with found_inf changes nothing. A formula that is scaled
// by norms takes all segments.
void update_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients, AnyFormula formula,
                    const HostSelection& selection = {});

// Implements Optimizer::update_part(). The formula is not scaled by norms.
void update_part_on_host(const Optimizer& optimizer, const StepState& state, const Optimizer::PartSteps& steps,
                         AnyFormula formula);

// Swaps the gradients of all trainable parts with those in `delayed`, which has the same form. A step with found_inf
// changes nothing.
void exchange_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                      at::Tensor& delayed);

}  // namespace trainyard::optim
