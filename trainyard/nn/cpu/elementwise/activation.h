// Computes activations and their derivatives for one channel block at a time. The error is a few 1e-7: relative, or
// absolute where the exact value is near zero. NaN stays NaN. Follows the rules of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Evaluates a polynomial by Horner's rule; the coefficient of the highest power comes first.
template <typename... Rest>
[[gnu::always_inline]] inline Floats polynomial(Floats x, Floats value, float next, Rest... rest) {
  const Floats longer = multiply_add(value, x, fill(next));
  if constexpr (sizeof...(rest) == 0) {
    return longer;
  } else {
    return polynomial(x, longer, rest...);
  }
}

// Returns e^x: 0 below the smallest normal float, infinity above the largest. After expf of Moshier's Cephes library.
[[gnu::always_inline]] inline Floats exponential(Floats x) {
  x = at_most(130.0F, at_least(-130.0F, x));
  const Floats round = fill(12582912.0F);  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats power = multiply_add(x, fill(1.44269504088896341F), round) - round;
  Floats r = multiply_add(power, fill(-0.693359375F), x);
  r = multiply_add(power, fill(2.12194440e-4F), r);
  const Floats tail = polynomial(r, fill(1.9875691500e-4F), 1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F,
                                 1.6666665459e-1F, 5.0000001201e-1F);
  const Floats value = multiply_add(tail, r * r, r + fill(1.0F));
  return times_power_of_two(value, power);
}

[[gnu::always_inline]] inline Floats sigmoid(Floats x) {
  return fill(1.0F) / (fill(1.0F) + exponential(-x));
}

// Returns tanh(x). After tanhf of Cephes.
[[gnu::always_inline]] inline Floats hyperbolic_tangent(Floats x) {
  const Floats size = absolute(x), square = x * x;
  const Floats small = multiply_add(polynomial(square, fill(-5.70498872745e-3F), 2.06390887954e-2F, -5.37397155531e-2F,
                                               1.33314422036e-1F, -3.33332819422e-1F),
                                    square * x, x);
  const Floats large = fill(1.0F) - fill(2.0F) / (exponential(size + size) + fill(1.0F));
  return size < fill(0.625F) ? small : copy_sign(large, x);
}

// Returns e^(-x^2 / 2).
[[gnu::always_inline]] inline Floats bell(Floats x) {
  return exponential(fill(-0.5F) * x * x);
}

// Returns the density of the normal distribution with mean 0 and variance 1, given bell(x).
[[gnu::always_inline]] inline Floats normal_density(Floats bell_of_x) {
  return fill(0.39894228040143268F) * bell_of_x;
}

// Returns the probability below x of the normal distribution with mean 0 and variance 1, given bell(x): its error is at
// most 8e-7 of it from -5 on. With z = |x| / sqrt(2) and t = 1 / (1 + 0.3 z), erfc(z) e^(z^2) / t is a smooth function
// of t (after Abramowitz and Stegun 7.1.26); half of it is the polynomial of degree 8 with the least largest relative
// error, 2e-8, for z up to 10.5.
[[gnu::always_inline]] inline Floats normal_below(Floats x, Floats bell_of_x) {
  const Floats one = fill(1.0F), t = one / multiply_add(absolute(x), fill(0.3F * 0.70710678118654752F), one);
  const Floats half =
      polynomial(t, fill(-6.477661264e-02F), 2.428612491e-01F, -2.563184740e-01F, 2.740860961e-01F, -4.749934382e-02F,
                 1.075466272e-01F, 7.414513197e-02F, 8.536158822e-02F, 8.459372814e-02F);
  const Floats tail = bell_of_x * (t * half);
  return x < Floats{} ? tail : one - tail;
}

// min(max(x + 3, 0), 6) / 6
[[gnu::always_inline]] inline Floats hard_sigmoid(Floats x) {
  return at_most(6.0F, at_least(0.0F, x + fill(3.0F))) * fill(1.0F / 6);
}

template <UnitActivation kind>
[[gnu::always_inline]] inline Floats activate(Floats x) {
  if constexpr (kind == UnitActivation::kNone) return x;
  if constexpr (kind == UnitActivation::kRelu) return at_least(0.0F, x);
  if constexpr (kind == UnitActivation::kRelu6) return at_most(6.0F, at_least(0.0F, x));
  if constexpr (kind == UnitActivation::kSilu) return x * sigmoid(x);
  if constexpr (kind == UnitActivation::kHardSwish) return x * hard_sigmoid(x);
  if constexpr (kind == UnitActivation::kHardSigmoid) return hard_sigmoid(x);
  if constexpr (kind == UnitActivation::kSigmoid) return sigmoid(x);
  if constexpr (kind == UnitActivation::kGelu) return x * normal_below(x, bell(x));
  if constexpr (kind == UnitActivation::kTanh) return hyperbolic_tangent(x);
}

// Returns gradient * activation'(x). At a corner it takes PyTorch's derivative: zero where one of the sides has zero,
// and for hard-swish at x = 3 the outer side's, which is 1.
template <UnitActivation kind>
[[gnu::always_inline]] inline Floats pass_back(Floats gradient, Floats x) {
  const Floats zero = fill(0.0F), one = fill(1.0F);
  if constexpr (kind == UnitActivation::kNone) return gradient;
  if constexpr (kind == UnitActivation::kRelu) return x <= zero ? zero : gradient;  // a NaN x passes it
  if constexpr (kind == UnitActivation::kRelu6) return ((x > zero) & (x < fill(6.0F))) ? gradient : zero;
  if constexpr (kind == UnitActivation::kSilu) {
    const Floats e = exponential(-x), s = one / (one + e);  // 1 - s = s * e without cancellation
    // Below -88 the derivative is within 6e-37 of zero, and s * e soon is zero times infinity.
    return gradient * (x < fill(-88.0F) ? x * zero : multiply_add(x * s, s * e, s));
  }
  if constexpr (kind == UnitActivation::kHardSwish) {
    const Floats middle = gradient * multiply_add(x, fill(1.0F / 3), fill(0.5F));
    const Floats right = x < fill(3.0F) ? middle : gradient;
    return x <= fill(-3.0F) ? zero : right;
  }
  if constexpr (kind == UnitActivation::kHardSigmoid) {
    return ((x > fill(-3.0F)) & (x < fill(3.0F))) ? gradient * fill(1.0F / 6) : zero;
  }
  if constexpr (kind == UnitActivation::kSigmoid) {
    const Floats e = exponential(-absolute(x)), s = one / (one + e);  // the derivative is even in x
    return gradient * (s * (s * e));
  }
  if constexpr (kind == UnitActivation::kGelu) {
    const Floats height = bell(x);
    return gradient * multiply_add(x, normal_density(height), normal_below(x, height));
  }
  if constexpr (kind == UnitActivation::kTanh) {
    const Floats t = hyperbolic_tangent(x);
    return gradient * multiply_add(-t, t, one);
  }
}

// Returns whether activation(0) = 0. If not, the pad lanes must be set to zero.
constexpr bool keeps_zero(UnitActivation kind) {
  return kind != UnitActivation::kHardSigmoid && kind != UnitActivation::kSigmoid;
}

template <UnitActivation k>
struct ActivationKind {
  static constexpr UnitActivation kValue = k;
};

// Calls `use` with the ActivationKind of `activation`: use([&](auto kind) { activate<kind.kValue>(x); }).
template <typename Use>
[[gnu::always_inline]] inline void with_activation(UnitActivation activation, Use&& use) {
  switch (activation) {
    case UnitActivation::kNone:
      return use(ActivationKind<UnitActivation::kNone>());
    case UnitActivation::kRelu:
      return use(ActivationKind<UnitActivation::kRelu>());
    case UnitActivation::kRelu6:
      return use(ActivationKind<UnitActivation::kRelu6>());
    case UnitActivation::kSilu:
      return use(ActivationKind<UnitActivation::kSilu>());
    case UnitActivation::kHardSwish:
      return use(ActivationKind<UnitActivation::kHardSwish>());
    case UnitActivation::kHardSigmoid:
      return use(ActivationKind<UnitActivation::kHardSigmoid>());
    case UnitActivation::kSigmoid:
      return use(ActivationKind<UnitActivation::kSigmoid>());
    case UnitActivation::kGelu:
      return use(ActivationKind<UnitActivation::kGelu>());
    case UnitActivation::kTanh:
      return use(ActivationKind<UnitActivation::kTanh>());
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
