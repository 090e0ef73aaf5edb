// The formulas of optimizers/layer_rates.cpp, which are scaled by norms of a parameter.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// l = eta * |w| / (|g| + decay * |w|);  v = m * v + lr * l * (g + decay * w);  w -= v
struct LarsFormula {
  static constexpr size_t kSlots = 1, kMeasuredSlots = 0;
  double momentum = 0, trust_coefficient = 0;
  template <typename T>
  TRAINYARD_FORMULA T measure(T gradient, T /*weight*/, T /*decay*/, T* /*slots*/) const {
    return gradient;
  }
  TRAINYARD_FORMULA double ratio(double weights, double gradients, double decay) const {
    return trust_coefficient * weights / (gradients + decay * weights);
  }
  template <typename T>
  TRAINYARD_FORMULA T update(T gradient, T weight, T learning_rate, T decay, T* slots) const {
    slots[0] = static_cast<T>(momentum) * slots[0] + learning_rate * (gradient + decay * weight);
    return weight - slots[0];
  }
};

// m, v as Adam's;  r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) + decay * w;  w -= lr * |w| / |r| * r
struct LambFormula {
  static constexpr size_t kSlots = 2, kMeasuredSlots = 2;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  bool bias_correction = true;
  double mean_factor = 1, root_factor = 1;  // derived
  TRAINYARD_FORMULA void begin_update(UpdateCount& count) {
    count.updates += 1;
    mean_factor = bias_correction ? 1 / (1 - power(beta1, count.updates)) : 1.0;
    root_factor = bias_correction ? 1 / square_root(1 - power(beta2, count.updates)) : 1.0;
  }
  template <typename T>
  TRAINYARD_FORMULA T direction(T weight, T decay, const T* slots) const {
    const T root = square_root(slots[1]) * static_cast<T>(root_factor) + static_cast<T>(epsilon);
    return static_cast<T>(mean_factor) * slots[0] / root + decay * weight;
  }
  template <typename T>
  TRAINYARD_FORMULA T measure(T gradient, T weight, T decay, T* slots) const {
    move_moments(beta1, beta2, gradient, slots);
    return direction(weight, decay, slots);
  }
  TRAINYARD_FORMULA double ratio(double weights, double directions, double /*decay*/) const {
    return weights / directions;
  }
  template <typename T>
  TRAINYARD_FORMULA T update(T /*gradient*/, T weight, T learning_rate, T decay, T* slots) const {
    return weight - learning_rate * direction(weight, decay, slots);
  }
};

#define TRAINYARD_FORMULAS_LAYER_RATES(X) X(LarsFormula) X(LambFormula)

}  // namespace trainyard::optim
