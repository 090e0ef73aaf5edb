// The formulas of optimizers/momentum.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// v = m * v + g;  w -= lr * v  |  w -= lr * (g + m * v)
template <bool kNesterov>
struct MomentumFormula {
  static constexpr size_t kSlots = 1;
  double momentum = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T m = static_cast<T>(momentum);
    slots[0] = m * slots[0] + gradient;
    return weight - learning_rate * (kNesterov ? gradient + m * slots[0] : slots[0]);
  }
};

// v = m * v + (1 - dampening) * g, in the first update v = g; w -= lr * v | w -= lr * (g + m * v) With m = 0 it is w -=
// lr * g: v does not change, dampening is ignored, and the update does not count as the first.
template <bool kNesterov>
struct TorchMomentumFormula {
  static constexpr size_t kSlots = 1;
  double momentum = 0, dampening = 0;
  double gradient_factor = 1;  // derived
  TRAINYARD_FORMULA void begin_update(UpdateCount& count) {
    if (momentum == 0) return;
    count.updates += 1;
    gradient_factor = count.updates == 1 ? 1.0 : 1.0 - dampening;
  }
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    if (momentum == 0) return weight - learning_rate * gradient;
    const T m = static_cast<T>(momentum);
    slots[0] = m * slots[0] + static_cast<T>(gradient_factor) * gradient;
    return weight - learning_rate * (kNesterov ? gradient + m * slots[0] : slots[0]);
  }
};

// v = m * v - lr * g;  w += v  |  w += m * v - lr * g
template <bool kNesterov>
struct KerasMomentumFormula {
  static constexpr size_t kSlots = 1;
  double momentum = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T m = static_cast<T>(momentum), step = learning_rate * gradient;
    slots[0] = m * slots[0] - step;
    return weight + (kNesterov ? m * slots[0] - step : slots[0]);
  }
};

#define TRAINYARD_FORMULAS_MOMENTUM(X) \
  X(MomentumFormula<false>)            \
  X(MomentumFormula<true>)             \
  X(TorchMomentumFormula<false>)       \
  X(TorchMomentumFormula<true>)        \
  X(KerasMomentumFormula<false>)       \
  X(KerasMomentumFormula<true>)

}  // namespace trainyard::optim
