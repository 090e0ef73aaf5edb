// The formula of optimizers/adam.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2, and in update t, from 1:
//   w -= lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)
// corrected_root: w -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + epsilon)
struct AdamFormula {
  static constexpr size_t kSlots = 2;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  bool corrected_root = false;
  double step_factor = 1, root_factor = 1;  // derived
  TRAINYARD_FORMULA void begin_update(UpdateCount& count) {
    count.updates += 1;
    const double root = square_root(1 - power(beta2, count.updates));
    step_factor = (corrected_root ? 1.0 : root) / (1 - power(beta1, count.updates));
    root_factor = corrected_root ? 1 / root : 1.0;
  }
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    move_moments(beta1, beta2, gradient, slots);
    const T root = square_root(slots[1]) * static_cast<T>(root_factor) + static_cast<T>(epsilon);
    return weight - learning_rate * static_cast<T>(step_factor) * slots[0] / root;
  }
};

#define TRAINYARD_FORMULAS_ADAM(X) X(AdamFormula)

}  // namespace trainyard::optim
