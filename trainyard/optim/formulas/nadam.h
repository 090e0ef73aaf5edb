// The formula of optimizers/nadam.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// u(t) = b1 * (1 - 0.5 * 0.96^(t * momentum_decay));  U(t) = u(1) * ... * u(t);  m, v as Adam's;
// w -= lr * ((1 - u(t)) / (1 - U(t)) * g + u(t+1) / (1 - U(t+1)) * m) / (sqrt(v / (1 - b2^t)) + epsilon)
struct NadamFormula {
  static constexpr size_t kSlots = 2;
  double beta1 = 0, beta2 = 0, epsilon = 0, momentum_decay = 0;
  double gradient_factor = 0, mean_factor = 0, square_correction = 0;  // derived
  TRAINYARD_FORMULA double momentum_of(double update) const {
    return beta1 * (1 - 0.5 * power(0.96, update * momentum_decay));
  }
  // Returns U(updates). The factors behind 1e-18 change no bit of 1 - U.
  TRAINYARD_FORMULA double momentum_product(double updates) const {
    double product = 1;
    for (int update = 1; update <= updates && product > 1e-18; ++update) product *= momentum_of(update);
    return product;
  }
  TRAINYARD_FORMULA void begin_update(UpdateCount& count) {
    count.updates += 1;
    const double momentum = momentum_of(count.updates), next_momentum = momentum_of(count.updates + 1);
    count.momentum_product *= momentum;
    gradient_factor = (1 - momentum) / (1 - count.momentum_product);
    mean_factor = next_momentum / (1 - count.momentum_product * next_momentum);
    square_correction = 1 / (1 - power(beta2, count.updates));
  }
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    move_moments(beta1, beta2, gradient, slots);
    const T step = static_cast<T>(gradient_factor) * gradient + static_cast<T>(mean_factor) * slots[0];
    const T root = square_root(slots[1] * static_cast<T>(square_correction)) + static_cast<T>(epsilon);
    return weight - learning_rate * step / root;
  }
};

#define TRAINYARD_FORMULAS_NADAM(X) X(NadamFormula)

}  // namespace trainyard::optim
