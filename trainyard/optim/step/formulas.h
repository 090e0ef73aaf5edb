// What each optimizer does with one element, for the CPU's loops and the GPU's kernels alike:
//   formula(gradient, weight, learning_rate, slots) -> new weight; slots[0 .. kSlots) are changed in place.
// All of one type, float or double. Passed to kernels by value: numbers only. Each stands in AnyFormula below, by which
// devices other than the CPU learn of it.
#pragma once

#include <cstddef>
#include <variant>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/host_device.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// w -= lr * g
struct SgdFormula {
  static constexpr size_t kSlots = 0;
  template <typename T>
  TRAINYARD_HOST_DEVICE T operator()(T gradient, T weight, T learning_rate, T* /*slots*/) const {
    return weight - learning_rate * gradient;
  }
};

// Polyak 1964, and Nesterov's form of it as TensorFlow computes it: the velocity is not scaled by the learning rate, so
// that a change of the rate acts at once.
//   v = m * v + g;  w -= lr * v  |  w -= lr * (g + m * v)
template <bool kNesterov>
struct MomentumFormula {
  static constexpr size_t kSlots = 1;
  double momentum = 0;
  template <typename T>
  TRAINYARD_HOST_DEVICE T operator()(T gradient, T weight, T learning_rate, T* slots) const {
    const T m = static_cast<T>(momentum);
    slots[0] = m * slots[0] + gradient;
    return weight - learning_rate * (kNesterov ? gradient + m * slots[0] : slots[0]);
  }
};

// A step's formula where its type is not known: DeviceKernels compile one kernel for each of these.
using AnyFormula = std::variant<SgdFormula, MomentumFormula<false>, MomentumFormula<true>>;

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
