// The formula of optimizers/lion.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// w -= lr * sign(b1 * m + (1 - b1) * g);  m = b2 * m + (1 - b2) * g. The sign of 0 is 0.
struct LionFormula {
  static constexpr size_t kSlots = 1;
  double beta1 = 0, beta2 = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T direction = static_cast<T>(beta1) * slots[0] + static_cast<T>(1 - beta1) * gradient;
    slots[0] = static_cast<T>(beta2) * slots[0] + static_cast<T>(1 - beta2) * gradient;
    const T sign = direction > 0 ? T(1) : direction < 0 ? T(-1) : direction;  // not a number stays one
    return weight - learning_rate * sign;
  }
};

#define TRAINYARD_FORMULAS_LION(X) X(LionFormula)

}  // namespace trainyard::optim
