// The formulas of optimizers/rmsprop.cpp.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// Updates slots[0], s = d * s + (1 - d) * g^2, and returns it; centered: also slots[2], a = d * a + (1 - d) * g, and
// returns s - a^2, at least 0. TensorFlow and PyTorch take what rounding has left of it, which may be NaN in the root.
template <bool kCentered, typename T>
TRAINYARD_FORMULA T mean_square(double decay, T gradient, T* slots) {
  const T d = static_cast<T>(decay), rest = static_cast<T>(1 - decay);
  slots[0] = d * slots[0] + rest * gradient * gradient;
  T square = slots[0];
  if constexpr (kCentered) {
    slots[2] = d * slots[2] + rest * gradient;
    square -= slots[2] * slots[2];
    // No variance is negative, but its rounding is where gradients hardly change, and the root would be NaN.
    square = square < T(0) ? T(0) : square;
  }
  return square;
}

// s = d * s + (1 - d) * g^2; v = m * v + lr * g / sqrt(s + epsilon); w -= v centered: a = d * a + (1 - d) * g, and s -
// a^2 instead of s in the root.
template <bool kCentered>
struct RmspropFormula {
  static constexpr size_t kSlots = kCentered ? 3 : 2;  // s, v, a
  double decay = 0, momentum = 0, epsilon = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T square = mean_square<kCentered>(decay, gradient, slots);
    const T root = square_root(square + static_cast<T>(epsilon));
    slots[1] = static_cast<T>(momentum) * slots[1] + learning_rate * gradient / root;
    return weight - slots[1];
  }
};

// s as above;  v = m * v + g / (sqrt(s) + epsilon);  w -= lr * v
template <bool kCentered>
struct TorchRmspropFormula {
  static constexpr size_t kSlots = kCentered ? 3 : 2;  // s, v, a
  double decay = 0, momentum = 0, epsilon = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T square = mean_square<kCentered>(decay, gradient, slots);
    slots[1] = static_cast<T>(momentum) * slots[1] + gradient / (square_root(square) + static_cast<T>(epsilon));
    return weight - learning_rate * slots[1];
  }
};

#define TRAINYARD_FORMULAS_RMSPROP(X) \
  X(RmspropFormula<false>)            \
  X(RmspropFormula<true>)             \
  X(TorchRmspropFormula<false>)       \
  X(TorchRmspropFormula<true>)

}  // namespace trainyard::optim
