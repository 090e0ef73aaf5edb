// The transforms of Winograd's F(4x4, 3x3) (Lavin and Gray, https://arxiv.org/abs/1509.09308) in integers, without any
// rounding. Follows the rules of nn/cpu/simd/compiled_for.h.
//
// A tile of 4x4 outputs is A^T [(G filter G^T) * (B^T pixels B)] A, with 36 products a channel pair instead of 144. The
// polynomials are evaluated at 0, 1, -1, 2, -1/2 and infinity. The two with a 2 in them are each other's negative
// inverse, which keeps the numbers small, and makes 2 the only even factor by which B has to be multiplied to be whole:
//
//         B^T, times 2                    G, times 15            A^T
//    2  3 -4 -3  2  0                15  0   0
//    0 -2 -5 -1  2  0                -5 -5  -5         1  1  1  1  8  0
//    0  2  1 -5  2  0                 5 -5   5         0  1 -1  2 -4  0
//    0 -1 -2  1  2  0                 1  2   4         0  1  1  4  2  0
//    0  2 -1 -2  1  0                -4  2  -1         0  1 -1  8 -1  1
//    0  2  3 -4 -3  2                 0  0  15
//
// - Rows of B^T have positive and negative coefficients of sum 8 at most, so that transformed bytes lie within
//   255 * 98 = 24,990; rows of G have coefficients of size 15 at most, and transformed weights lie within
//   127 * 225 = 28,575. Both fit 16 bits.
// - Products, and all sums behind them, are computed modulo 2^32, and give (2 * 15)^2 = 900 times the convolution's
//   sum. Multiplied with the inverse of 225, modulo 2^32, they are 4 times that sum, which is exact where that lies
//   within 31 bits: QuantizedConvolution::kMostWinogradChannels.
#pragma once

#include "trainyard/nn/cpu/quantized/dot.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int kWinogradSide = 6;

// Numbers without a sign, whose sums may exceed their bits; those of 16 bits are read as numbers with a sign.
using Shorts [[gnu::vector_size(kLanes * 4)]] = uint16_t;
using Words [[gnu::vector_size(kLanes * 4)]] = uint32_t;

// One direction of B^T pixels B.
[[gnu::always_inline]] inline void transform_pixels(const Shorts (&d)[6], Shorts (&to)[6]) {
  const Shorts a = d[4] - d[2], b = d[3] - d[1], twice_a = a + a, twice_b = b + b;
  const Shorts near = d[1] + d[2], far = d[2] - d[3], first = d[0] - d[2] + a, last = d[5] - d[3] - b;
  to[0] = first + first - (twice_b + b);
  to[1] = twice_a - b - (near + near + near);
  to[2] = twice_a - twice_b + (far + far + far);
  to[3] = twice_a + b;
  to[4] = a - twice_b;
  to[5] = last + last - (twice_a + a);
}

// One direction of A^T products A.
[[gnu::always_inline]] inline void transform_products(const Words (&m)[6], Words (&to)[4]) {
  const Words sum = m[1] + m[2], difference = m[1] - m[2];
  const Words even = m[3] + m[3] + m[4], odd = m[3] - m[4] - m[4];
  to[0] = m[0] + sum + m[3] + (m[4] << 3);
  to[1] = difference + odd + odd;
  to[2] = sum + even + even;
  to[3] = m[5] + difference - m[4] + (m[3] << 3);
}

// One direction of G filter G^T, of one channel pair.
inline void transform_filter(const int32_t (&g)[3], int32_t (&to)[6]) {
  const int32_t ends = g[0] + g[2];
  to[0] = 15 * g[0];
  to[1] = -5 * (ends + g[1]);
  to[2] = 5 * (ends - g[1]);
  to[3] = g[0] + 2 * g[1] + 4 * g[2];
  to[4] = 2 * g[1] - 4 * g[0] - g[2];
  to[5] = 15 * g[2];
}

// Returns the convolution's sums of what both directions of transform_products() make.
[[gnu::always_inline]] inline Ints sums_of(Words transformed) {
  constexpr uint32_t kInverse = 2271560481U;  // 225 * kInverse = 1 modulo 2^32
  static_assert(225U * kInverse == 1U);
  return __builtin_bit_cast(Ints, transformed * kInverse) >> 2;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
