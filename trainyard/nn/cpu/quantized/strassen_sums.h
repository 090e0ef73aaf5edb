// Strassen's product of matrices in Winograd's form, in integers, without any rounding. Follows the rules of
// nn/cpu/simd/compiled_for.h.
//
// Pixels, columns and outputs are cut in halves, and seven products of sums of the parts take the place of eight; with
// two levels each of the seven is made in the same way, 49 instead of 64. The parts of a matrix are numbered by rows,
// and with two levels by the parts of the first, then of the second level.
//
//   product   left                right                   is added to
//   0         A0                  B0                      C0 C1 C2 C3
//   1         A2 + A3 - A0        B0 - B1 + B3               C1 C2 C3
//   2         A0 - A2             B3 - B1                       C2 C3
//   3         A3                  B1 + B2 - B0 - B3             C2
//   4         A2 + A3             B1 - B0                    C1    C3
//   5         A0 + A1 - A2 - A3   B3                         C1
//   6         A1                  B2                      C0
//
// In this order a sum is continued from one product to the next, and seldom kept (kUses). A sum of four parts is at
// most four times as large: with two levels, pixels less their zero point lie within 16 * 255 = 4080, and weights
// within 16 * 127 = 2032. Sums of products are computed modulo 2^32, and the convolution's sum is below 2^31.
#pragma once

#include "trainyard/nn/cpu/quantized/shorts.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int kStrassenProducts = 7, kStrassenParts = 4, kStrassenKept = 3;

constexpr int8_t kStrassenRight[kStrassenProducts][kStrassenParts] = {
    {1, 0, 0, 0}, {1, -1, 0, 1}, {0, -1, 0, 1}, {-1, 1, 1, -1}, {-1, 1, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}};

// What becomes of a product: it is added to what is kept at `also`; what is kept at `add` is added to it; then it is
// kept at `keep`, or it is part `part` of the result. Negative numbers: none.
struct StrassenUse {
  int8_t also, add, keep, part;
};
constexpr StrassenUse kStrassenUses[kStrassenProducts] = {
    {-1, -1, 0, -1}, {-1, 0, 1, -1}, {-1, 1, 2, -1}, {-1, 2, -1, 2}, {1, 2, -1, 3}, {-1, 1, -1, 1}, {-1, 0, -1, 0}};

constexpr int64_t power(int64_t base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

// Returns the row of a part, or with `of` = 1 its column, among the 2^levels of a matrix.
constexpr int64_t part_place(int64_t part, int levels, int of) {
  int64_t place = 0;
  for (int level = levels; level-- > 0;) {
    const int64_t here = part / power(kStrassenParts, level) % kStrassenParts;
    place = place * 2 + (of == 0 ? here / 2 : here % 2);
  }
  return place;
}

// Makes what the products multiply of the parts of the left factor: product r is written to to[r * step].
template <int levels>
[[gnu::always_inline]] inline void left_sums(const Shorts* parts, int16_t* to, int64_t step) {
  if constexpr (levels == 0) {
    store_ints(to, __builtin_bit_cast(Ints, parts[0]));
  } else {
    constexpr int64_t kInner = power(kStrassenParts, levels - 1), kStep = power(kStrassenProducts, levels - 1);
    Shorts made[kStrassenProducts][kInner];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kInner; ++i) {
      const Shorts a0 = parts[i], a1 = parts[kInner + i], a2 = parts[2 * kInner + i], a3 = parts[3 * kInner + i];
      const Shorts sum = a2 + a3, less = sum - a0;
      made[0][i] = a0;
      made[1][i] = less;
      made[2][i] = a0 - a2;
      made[3][i] = a3;
      made[4][i] = sum;
      made[5][i] = a1 - less;
      made[6][i] = a1;
    }
#pragma GCC unroll 7
    for (int r = 0; r < kStrassenProducts; ++r) left_sums<levels - 1>(made[r], to + r * kStep * step, step);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
