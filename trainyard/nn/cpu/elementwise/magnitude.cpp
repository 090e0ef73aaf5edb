// Finds the largest magnitude. Absolute values of floats compare as their bits do, and NaN's bits are above infinity's.
#include "trainyard/nn/cpu/simd/arguments.h"
#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

constexpr int64_t kPiece = 4096, kWorthATeam = 65536;  // elements

[[gnu::always_inline]] inline Ints larger_lanes(Ints a, Ints b) {
  return a > b ? a : b;
}
[[gnu::always_inline]] inline Ints magnitude(Floats value) {
  return __builtin_bit_cast(Ints, absolute(value));
}
inline int32_t largest_lane(Ints value) {
  int32_t largest = 0;
  for (int64_t i = 0; i < kLanes; ++i) largest = value[i] > largest ? value[i] : largest;
  return largest;
}

// Returns the bits of the largest absolute value of `count` elements.
template <typename T>
int32_t largest_of(const T* from, int64_t count) {
  Ints most[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) most[k] = larger_lanes(most[k], magnitude(load(from + i + k * kLanes)));
  }
  for (; i + kLanes <= count; i += kLanes) most[0] = larger_lanes(most[0], magnitude(load(from + i)));
  int32_t largest = largest_lane(larger_lanes(larger_lanes(most[0], most[1]), larger_lanes(most[2], most[3])));
  for (; i < count; ++i) {
    const int32_t bits = __builtin_bit_cast(int32_t, widen(from[i])) & 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

template <typename T>
float largest(const T* from, int64_t count) {
  int32_t most = 0;
#pragma omp parallel for schedule(static) reduction(max : most) if (count > kWorthATeam)
  for (int64_t first = 0; first < count; first += kPiece) {
    const int32_t here = largest_of(from + first, smaller(kPiece, count - first));
    most = here > most ? here : most;
  }
  return __builtin_bit_cast(float, most);
}

float sum_of(const float* row, int64_t count) {
  Floats sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sums[k] += absolute(load(row + i + k * kLanes));
  }
  const Floats both = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) sum += both[lane];
  for (; i < count; ++i) sum += __builtin_fabsf(row[i]);
  return sum;
}

}  // namespace

void largest_magnitude(const LargestMagnitude& a) {
  *a.result = a.dtype == DataType::kFloat ? largest(static_cast<const float*>(a.values), a.count)
                                          : largest(static_cast<const Bfloat16*>(a.values), a.count);
}

void largest_row_sum(const LargestRowSum& a) {
  int32_t most = 0;
#pragma omp parallel for schedule(static) reduction(max : most) if (a.rows * a.columns > kWorthATeam)
  for (int64_t row = 0; row < a.rows; ++row) {
    const int32_t here = __builtin_bit_cast(int32_t, sum_of(a.values + row * a.columns, a.columns)) & 0x7FFFFFFF;
    most = here > most ? here : most;
  }
  *a.result = __builtin_bit_cast(float, most);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
