// The update of one element by each optimizer, for the CPU's loops and the GPU's kernels:
//   formula(gradient, weight, learning_rate, slots) -> new weight; slots[0 .. kSlots) are changed in place.
// All values have one type, float or double. Formulas are passed to kernels by value: numbers only. Each family is a
// header of this folder that ends with the list of its types, TRAINYARD_FORMULAS_<FAMILY>. No <variant> and no LibTorch
// here: kernels that are compiled for several instruction sets include these headers.
//
// A formula that depends on the number of updates (bias corrections) has begin_update(count): it increments the count,
// and sets the members that are derived from it. It is called on the parameters' device, so that no step has a branch
// on the host. One that reads UpdateCount::momentum_product has momentum_product(updates), too, for parameters that
// have missed updates: that product of so many updates with the present numbers.
//
// A formula that is scaled by norms of a parameter (LARS, LAMB) has, instead of the call above,
//   measure(gradient, weight, decay, slots) -> the element of the vector whose norm is compared with that of the
//   weights;
//     slots[0 .. kMeasuredSlots) are changed in place;
//   ratio(norm of the weights, norm of that vector, decay) -> what the learning rate is multiplied by, where both norms
//     are above 0 (else it is 1);
//   update(gradient, weight, learning rate * ratio, decay, slots) -> new weight; slots[kMeasuredSlots .. kSlots)
//   change.
// `decay` is the weight decay of the parameter: these formulas add it themselves.
#pragma once

#include <cmath>
#include <cstddef>

#include "trainyard/core/base/host_device.h"

// A formula is compiled for several instruction sets: no copy of it may exist outside of the loop that uses it, because
// the linker would use any one of them for all.
#ifdef __CUDACC__
#define TRAINYARD_FORMULA TRAINYARD_HOST_DEVICE __forceinline__
#else
#define TRAINYARD_FORMULA [[gnu::always_inline]] inline
#endif

namespace trainyard::optim {

// The number of updates: two float64 on the parameters' device. Skipped steps do not count, nor do updates of
// torch_momentum without momentum.
struct UpdateCount {
  double updates = 0;
  double momentum_product = 1;  // product of the momenta of those updates, from Nadam's schedule
};

#ifdef __CUDACC__
TRAINYARD_FORMULA float square_root(float x) {
  return sqrtf(x);
}
TRAINYARD_FORMULA double square_root(double x) {
  return sqrt(x);
}
TRAINYARD_FORMULA double power(double base, double exponent) {
  return pow(base, exponent);
}
#else
TRAINYARD_FORMULA float square_root(float x) {
  return __builtin_sqrtf(x);
}
TRAINYARD_FORMULA double square_root(double x) {
  return __builtin_sqrt(x);
}
TRAINYARD_FORMULA double power(double base, double exponent) {
  return __builtin_pow(base, exponent);
}
#endif

// Updates slots[0], m = b1 * m + (1 - b1) * g, and slots[1], v = b2 * v + (1 - b2) * g^2.
template <typename T>
TRAINYARD_FORMULA void move_moments(double beta1, double beta2, T gradient, T* slots) {
  slots[0] = static_cast<T>(beta1) * slots[0] + static_cast<T>(1 - beta1) * gradient;
  slots[1] = static_cast<T>(beta2) * slots[1] + static_cast<T>(1 - beta2) * gradient * gradient;
}

template <typename Formula>
inline constexpr bool kCountsUpdates = requires(Formula formula, UpdateCount count) {
  formula.begin_update(count);
};
template <typename Formula>
inline constexpr bool kReadsMomentumProduct = requires(const Formula formula, double updates) {
  formula.momentum_product(updates);
};
template <typename Formula>
inline constexpr bool kScaledByNorms = requires {
  Formula::kMeasuredSlots;
};

// A formula whose weight decay is no factor of the weight has, instead of the call,
//   decayed(gradient, weight, learning rate, decay, slots) -> new weight
template <typename Formula>
inline constexpr bool kTakesDecay = requires(const Formula formula, float number, float* slots) {
  formula.decayed(number, number, number, number, slots);
};

inline constexpr size_t kMostSlots = 4;

}  // namespace trainyard::optim
