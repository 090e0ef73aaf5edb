// The formula of optimizers/radam.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// m, v as Adam's;  p = 2 / (1 - b2) - 1;  p(t) = p - 2 t * b2^t / (1 - b2^t), and where p(t) > 5
//   w -= lr * sqrt((p(t) - 4) (p(t) - 2) p / ((p - 4) (p - 2) p(t)))
//        * m / (1 - b1^t) * sqrt(1 - b2^t) / (sqrt(v) + epsilon)
// else w -= lr * m / (1 - b1^t)
struct RadamFormula {
  static constexpr size_t kSlots = 2;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double step_factor = 1;  // derived
  bool adapts = false;     // derived
  TRAINYARD_FORMULA void begin_update(UpdateCount& count) {
    count.updates += 1;
    const double correction = 1 - power(beta2, count.updates);
    const double most = 2 / (1 - beta2) - 1;
    const double length = most - 2 * count.updates * (1 - correction) / correction;
    step_factor = 1 / (1 - power(beta1, count.updates));
    adapts = length > 5;
    if (!adapts) return;
    step_factor *=
        square_root((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) * square_root(correction);
  }
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    move_moments(beta1, beta2, gradient, slots);
    const T root = adapts ? square_root(slots[1]) + static_cast<T>(epsilon) : T(1);
    return weight - learning_rate * static_cast<T>(step_factor) * slots[0] / root;
  }
};

#define TRAINYARD_FORMULAS_RADAM(X) X(RadamFormula)

}  // namespace trainyard::optim
