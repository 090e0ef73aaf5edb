// The loops of kernels.h. They are written plainly: the compiler turns them into vector instructions, of whichever set
// this source is compiled for. Each weight, gradient and slot is read once and written once; those of a step together
// stay in registers.
#include "trainyard/optim/cpu/arguments.h"

#if defined(TRAINYARD_KERNELS_AVX512)
#define TRAINYARD_ISA avx512
#else
#define TRAINYARD_ISA avx2
#endif

#if defined(__clang__)
#define TRAINYARD_INDEPENDENT
#else
#define TRAINYARD_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace trainyard::optim::cpu::TRAINYARD_ISA {
namespace {

template <bool kL1, typename T>
[[gnu::always_inline]] inline T whole_gradient(T gradient, T weight, const Part<T>& part) {
  T whole = gradient * part.inverse_loss_scale + part.l2_rate * weight;
  if constexpr (kL1) whole += weight > 0 ? part.l1_rate : weight < 0 ? -part.l1_rate : T(0);
  return whole;
}

// Not a number stays one.
template <typename T>
[[gnu::always_inline]] inline T clipped(T gradient, T clip) {
  const T raised = gradient < -clip ? -clip : gradient;
  return raised > clip ? clip : raised;
}

template <bool kL1, typename T, typename Formula>
[[gnu::always_inline]] inline void update(const Part<T>& given, const Formula& formula) {
  const Part<T> part = given;
  TRAINYARD_INDEPENDENT
  for (int64_t i = 0; i < part.count; ++i) {
    const T weight = part.values[i];
    const T gradient = clipped(whole_gradient<kL1>(part.gradients[i], weight, part), part.clip);
    T slots[Formula::kSlots + 1];
    for (size_t s = 0; s < Formula::kSlots; ++s) slots[s] = part.slots[s][i];
    if constexpr (kScaledByNorms<Formula>) {
      part.values[i] = formula.update(gradient, weight, part.learning_rate, part.decay, slots);
      for (size_t s = Formula::kMeasuredSlots; s < Formula::kSlots; ++s) part.slots[s][i] = slots[s];
    } else if constexpr (kTakesDecay<Formula>) {
      part.values[i] = formula.decayed(gradient, weight, part.learning_rate, part.decay, slots);
      for (size_t s = 0; s < Formula::kSlots; ++s) part.slots[s][i] = slots[s];
    } else {
      part.values[i] = formula(gradient, part.keep * weight, part.learning_rate, slots);
      for (size_t s = 0; s < Formula::kSlots; ++s) part.slots[s][i] = slots[s];
    }
  }
}

// One element; returns what the norm is taken of.
template <bool kL1, typename T, typename Formula>
[[gnu::always_inline]] inline T measure_element(const Part<T>& part, const Formula& formula, int64_t i) {
  const T weight = part.values[i];
  const T gradient = clipped(whole_gradient<kL1>(part.gradients[i], weight, part), part.clip);
  T slots[Formula::kSlots + 1];
  for (size_t s = 0; s < Formula::kMeasuredSlots; ++s) slots[s] = part.slots[s][i];
  const T measured = formula.measure(gradient, weight, part.decay, slots);
  for (size_t s = 0; s < Formula::kMeasuredSlots; ++s) part.slots[s][i] = slots[s];
  return measured;
}

// Adds up weight(i)^2 and measured(i)^2 for all elements. Sums are kept per lane, in vector registers: the order of the
// additions is part of the result. Short sums of T are added up in double, so that they lose no digits.
template <typename T, typename Weight, typename Measured>
[[gnu::always_inline]] inline Squares sum_squares(int64_t count, const Weight& weight, const Measured& measured) {
  constexpr int64_t kLanes = 16, kShort = 64 * kLanes;
  Squares sums;
  for (int64_t begin = 0; begin < count; begin += kShort) {
    const int64_t end = count - begin < kShort ? count : begin + kShort;
    T weights[kLanes] = {}, others[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      TRAINYARD_INDEPENDENT
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const T w = weight(i + lane), m = measured(i + lane);
        weights[lane] += w * w;
        others[lane] += m * m;
      }
    }
    for (int64_t lane = 0; i < end; ++i, ++lane) {
      const T w = weight(i), m = measured(i);
      weights[lane] += w * w;
      others[lane] += m * m;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums.weights += static_cast<double>(weights[lane]);
      sums.measured += static_cast<double>(others[lane]);
    }
  }
  return sums;
}

template <bool kL1, typename T, typename Formula>
[[gnu::always_inline]] inline Squares measure(const Part<T>& given, const Formula& formula) {
  const Part<T> part = given;
  return sum_squares<T>(
      part.count, [&](int64_t i) { return part.values[i]; },
      [&](int64_t i) { return measure_element<kL1>(part, formula, i); });
}

// Returns zeros for a formula that is not scaled by norms: nothing calls it there.
template <typename T, typename Formula>
[[gnu::always_inline]] inline Squares measure_where_scaled(const Part<T>& part, const Formula& formula) {
  if constexpr (kScaledByNorms<Formula>) {
    return part.l1_rate != 0 ? measure<true>(part, formula) : measure<false>(part, formula);
  } else {
    return {};
  }
}

// In double throughout: squares of large gradients do not fit into a float.
template <bool kL1, typename T>
[[gnu::always_inline]] inline Squares measure_gradients(const Part<T>& given, bool reads_values) {
  const Part<T> part = given;
  if (!reads_values) {
    return sum_squares<double>(
        part.count, [](int64_t) { return T(0); },
        [&](int64_t i) { return part.gradients[i] * part.inverse_loss_scale; });
  }
  return sum_squares<double>(
      part.count, [&](int64_t i) { return part.values[i]; },
      [&](int64_t i) { return whole_gradient<kL1>(part.gradients[i], part.values[i], part); });
}

template <bool kL1, typename T>
[[gnu::always_inline]] inline void complete(const Part<T>& given) {
  const Part<T> part = given;
  TRAINYARD_INDEPENDENT
  for (int64_t i = 0; i < part.count; ++i) {
    part.gradients[i] = whole_gradient<kL1>(part.gradients[i], part.values[i], part);
  }
}

}  // namespace

// Few parameters have an L1 term: the others do not pay for it.
#define TRAINYARD_DEFINE_UPDATE(Formula)                                            \
  void update_part(const Part<float>& part, const Formula& formula);                \
  void update_part(const Part<double>& part, const Formula& formula);               \
  void update_part(const Part<float>& part, const Formula& formula) {               \
    part.l1_rate != 0 ? update<true>(part, formula) : update<false>(part, formula); \
  }                                                                                 \
  void update_part(const Part<double>& part, const Formula& formula) {              \
    part.l1_rate != 0 ? update<true>(part, formula) : update<false>(part, formula); \
  }
TRAINYARD_FORMULAS(TRAINYARD_DEFINE_UPDATE)
#undef TRAINYARD_DEFINE_UPDATE

#define TRAINYARD_DEFINE_MEASURE(Formula)                                  \
  Squares measure_part(const Part<float>& part, const Formula& formula);   \
  Squares measure_part(const Part<double>& part, const Formula& formula);  \
  Squares measure_part(const Part<float>& part, const Formula& formula) {  \
    return measure_where_scaled(part, formula);                            \
  }                                                                        \
  Squares measure_part(const Part<double>& part, const Formula& formula) { \
    return measure_where_scaled(part, formula);                            \
  }
TRAINYARD_FORMULAS(TRAINYARD_DEFINE_MEASURE)
#undef TRAINYARD_DEFINE_MEASURE

Squares measure_gradient_part(const Part<float>& part, bool reads_values);
Squares measure_gradient_part(const Part<double>& part, bool reads_values);
Squares measure_gradient_part(const Part<float>& part, bool reads_values) {
  return part.l1_rate != 0 ? measure_gradients<true>(part, reads_values) : measure_gradients<false>(part, reads_values);
}
Squares measure_gradient_part(const Part<double>& part, bool reads_values) {
  return part.l1_rate != 0 ? measure_gradients<true>(part, reads_values) : measure_gradients<false>(part, reads_values);
}

void complete_part(const Part<float>& part);
void complete_part(const Part<double>& part);
void complete_part(const Part<float>& part) {
  part.l1_rate != 0 ? complete<true>(part) : complete<false>(part);
}
void complete_part(const Part<double>& part) {
  part.l1_rate != 0 ? complete<true>(part) : complete<false>(part);
}

}  // namespace trainyard::optim::cpu::TRAINYARD_ISA
