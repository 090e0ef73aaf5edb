// The formulas of optimizers/schedule_free.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// y += c * (z - y);  y += lr * (beta * (1 - c) - 1) * g;  z -= lr * g. The weight is y; slots[0] is z.
struct ScheduleFreeSgdFormula {
  static constexpr size_t kSlots = 1;
  double beta = 0;
  double step_weight = 1;  // c: the part of this step in the mean
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T moved = weight + static_cast<T>(step_weight) * (slots[0] - weight) +
                    learning_rate * static_cast<T>(beta * (1 - step_weight) - 1) * gradient;
    slots[0] -= learning_rate * gradient;
    return moved;
  }
  // A decoupled decay cannot shrink y alone, because z would keep its size. It moves y and z as the gradient does.
  template <typename T>
  TRAINYARD_FORMULA T decayed(T gradient, T weight, T learning_rate, T decay, T* slots) const {
    return (*this)(gradient + decay * weight, weight, learning_rate, slots);
  }
};

// v = b2 * v + (1 - b2) * g^2, and the above with g / (sqrt(v / (1 - b2^t)) + epsilon) + decay * y instead of g.
// slots[1] is v.
struct ScheduleFreeAdamwFormula {
  static constexpr size_t kSlots = 2;
  ScheduleFreeSgdFormula step{};
  double beta2 = 0, epsilon = 0;
  double root_factor = 1;  // 1 / sqrt(1 - b2^t)
  template <typename T>
  TRAINYARD_FORMULA T decayed(T gradient, T weight, T learning_rate, T decay, T* slots) const {
    slots[1] = static_cast<T>(beta2) * slots[1] + static_cast<T>(1 - beta2) * gradient * gradient;
    const T root = square_root(slots[1]) * static_cast<T>(root_factor) + static_cast<T>(epsilon);
    return step(gradient / root + decay * weight, weight, learning_rate, slots);
  }
};

#define TRAINYARD_FORMULAS_SCHEDULE_FREE(X) X(ScheduleFreeSgdFormula) X(ScheduleFreeAdamwFormula)

}  // namespace trainyard::optim
