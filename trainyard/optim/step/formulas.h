// What each optimizer does with one element, for the CPU's loops and the GPU's kernels alike:
//   formula(gradient, weight, learning_rate, slots) -> new weight; slots[0 .. kSlots) are changed in place.
// All of one type, float or double. Passed to kernels by value: numbers only. TRAINYARD_FORMULAS below lists them, and
// any_formula.h holds one of them whose type is not known. No <variant> and no LibTorch here: kernels that are compiled
// for several instruction sets include this.
//
// A formula that depends on the number of updates (bias corrections) has begin_update(count): it moves the count on by
// one update, and sets those members that the update derives from it. It is called where the parameters lie, so that no
// step has a branch on the host.
//
// A formula that is scaled by norms of a parameter (LARS, LAMB) has, in the place of the call above,
//   measure(gradient, weight, decay, slots) -> the element of the vector whose norm counts beside that of the weights;
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

// A formula is compiled for several instruction sets: no copy of it may stand outside of the loop that uses it, where
// the linker would take any of them for all.
#ifdef __CUDACC__
#define TRAINYARD_FORMULA TRAINYARD_HOST_DEVICE __forceinline__
#else
#define TRAINYARD_FORMULA [[gnu::always_inline]] inline
#endif

namespace trainyard::optim {

// How many updates there were: two float64 where the parameters lie. Skipped steps do not count, nor do updates of
// torch_momentum without momentum.
struct UpdateCount {
  double updates = 0;
  double momentum_product = 1;  // of the momenta of those updates, which Nadam's schedule gives
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

// w -= lr * g
struct SgdFormula {
  static constexpr size_t kSlots = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* /*slots*/) const {
    return weight - learning_rate * gradient;
  }
};

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

// v = m * v + (1 - dampening) * g, in the first update v = g;  w -= lr * v  |  w -= lr * (g + m * v)
// With m = 0 it is w -= lr * g: v stays as it is, dampening does not act, and the update does not count as the first.
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

// Moves slots[0], s = d * s + (1 - d) * g^2, and returns it; centered: also slots[2], a = d * a + (1 - d) * g, and
// returns s - a^2.
template <bool kCentered, typename T>
TRAINYARD_FORMULA T mean_square(double decay, T gradient, T* slots) {
  const T d = static_cast<T>(decay), rest = static_cast<T>(1 - decay);
  slots[0] = d * slots[0] + rest * gradient * gradient;
  T square = slots[0];
  if constexpr (kCentered) {
    slots[2] = d * slots[2] + rest * gradient;
    square -= slots[2] * slots[2];
  }
  return square;
}

// Moves slots[0], m = b1 * m + (1 - b1) * g, and slots[1], v = b2 * v + (1 - b2) * g^2.
template <typename T>
TRAINYARD_FORMULA void move_moments(double beta1, double beta2, T gradient, T* slots) {
  slots[0] = static_cast<T>(beta1) * slots[0] + static_cast<T>(1 - beta1) * gradient;
  slots[1] = static_cast<T>(beta2) * slots[1] + static_cast<T>(1 - beta2) * gradient * gradient;
}

// s = d * s + (1 - d) * g^2;  v = m * v + lr * g / sqrt(s + epsilon);  w -= v
// centered: a = d * a + (1 - d) * g, and s - a^2 in the place of s in the root.
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

// u(t) = b1 * (1 - 0.5 * 0.96^(t * momentum_decay));  U(t) = u(1) * ... * u(t);  m, v as Adam's;
// w -= lr * ((1 - u(t)) / (1 - U(t)) * g + u(t+1) / (1 - U(t+1)) * m) / (sqrt(v / (1 - b2^t)) + epsilon)
struct NadamFormula {
  static constexpr size_t kSlots = 2;
  double beta1 = 0, beta2 = 0, epsilon = 0, momentum_decay = 0;
  double gradient_factor = 0, mean_factor = 0, square_correction = 0;  // derived
  TRAINYARD_FORMULA double momentum_of(double update) const {
    return beta1 * (1 - 0.5 * power(0.96, update * momentum_decay));
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

template <typename Formula>
inline constexpr bool kCountsUpdates = requires(Formula formula, UpdateCount count) {
  formula.begin_update(count);
};
template <typename Formula>
inline constexpr bool kScaledByNorms = requires {
  Formula::kMeasuredSlots;
};

inline constexpr size_t kMostSlots = 4;

// All formulas: those of single elements, and those that are scaled by norms.
#define TRAINYARD_ELEMENT_FORMULAS(X) \
  X(SgdFormula)                       \
  X(MomentumFormula<false>)           \
  X(MomentumFormula<true>)            \
  X(TorchMomentumFormula<false>)      \
  X(TorchMomentumFormula<true>)       \
  X(KerasMomentumFormula<false>)      \
  X(KerasMomentumFormula<true>)       \
  X(RmspropFormula<false>)            \
  X(RmspropFormula<true>)             \
  X(TorchRmspropFormula<false>)       \
  X(TorchRmspropFormula<true>)        \
  X(AdamFormula)                      \
  X(NadamFormula)
#define TRAINYARD_NORM_FORMULAS(X) \
  X(LarsFormula)                   \
  X(LambFormula)
#define TRAINYARD_FORMULAS(X)   \
  TRAINYARD_ELEMENT_FORMULAS(X) \
  TRAINYARD_NORM_FORMULAS(X)

}  // namespace trainyard::optim
