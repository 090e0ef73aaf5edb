// flat_update() for parameters in the host's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "trainyard/optim/step/any_formula.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

class Optimizer;

// Elements [begin, begin + count) of a segment, by its index in ParameterSet::segments(), and what measure_on_host()
// finds of them.
struct MeasuredPart {
  int64_t begin = 0, count = 0;
  size_t segment = 0;
  double weight_squares = 0;    // 0 where no value had to be read
  double gradient_squares = 0;  // without the loss scale; 0 where the segment does not train
};
// Adds up the squares of `gradients`, with_regularization of those of the whole loss, and with_weights of the weights.
// The same bits on any number of threads.
void measure_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                     std::span<MeasuredPart> parts, bool with_regularization, bool with_weights);

// Does what flat_update() says by the loops of optim/cpu. A step with found_inf touches nothing.
void update_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                    AnyFormula formula);

// Exchanges the gradients of all that trains for those in `delayed`, of the same form. A step with found_inf touches
// nothing.
void exchange_on_host(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                      at::Tensor& delayed);

}  // namespace trainyard::optim
