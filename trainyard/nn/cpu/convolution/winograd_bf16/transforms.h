// The transforms of F(2x2, 3x3) and F(3x3, 3x3), in one dimension and of squares. A square is one channel block of one
// tile.
//
// The polynomials of F(2x2, 3x3) are evaluated at 0, 1, -1 and infinity:
//   B^T = | 1  0 -1  0 |   A^T = | 1  1  1  0 |   G = |  1    0    0  |
//         | 0  1  1  0 |         | 0  1 -1 -1 |       | 1/2  1/2  1/2 |
//         | 0 -1  1  0 |                              | 1/2 -1/2  1/2 |
//         | 0  1  0 -1 |                              |  0    0    1  |
// Those of F(3x3, 3x3) at a, -a, b, -b and infinity; a2 is the square of a, and so on, n_a = 2 a (a2 - b2) and
// n_b = 2 b (b2 - a2):
//   B^T = | -a b2   -b2    a    1  0 |   A^T = | 1  1  1  1  0 |   G = | 1/n_a  a/n_a  a2/n_a |
//         | -a b2    b2    a   -1  0 |         | a -a  b -b  0 |       | 1/n_a -a/n_a  a2/n_a |
//         | -a2 b   -a2    b    1  0 |         | a2 a2 b2 b2 1 |       | 1/n_b  b/n_b  b2/n_b |
//         | -a2 b    a2    b   -1  0 |                                 | 1/n_b -b/n_b  b2/n_b |
//         |  a2b2    0  -a2-b2  0  1 |                                 |   0      0      1    |
// With a = 0.382 and b = 1.28 what is rounded disturbs the result least: 1.57 times as much as in F(2x2, 3x3), by the
// squares of the matrices' numbers. At the usual points 0, 1, -1 and 2 it would be 3.6 times as much. (The best five
// points are nearly those whose angles, if each point is a slope, divide the half circle evenly.)
#pragma once

#include "trainyard/nn/cpu/convolution/winograd_bf16/tile.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Calls use.operator()<i>() for each i from 0 to `count` - 1: the places of arrays in registers are known when
// compiling.
template <int count, int i = 0, typename Use>
[[gnu::always_inline]] inline void unrolled(const Use& use) {
  if constexpr (i < count) {
    use.template operator()<i>();
    unrolled<count, i + 1>(use);
  }
}

[[gnu::always_inline]] inline Floats times(float factor, Floats value) {
  return _mm512_set1_ps(factor) * value;
}
[[gnu::always_inline]] inline Floats plus(Floats sum, float factor, Floats value) {
  return _mm512_fmadd_ps(_mm512_set1_ps(factor), value, sum);
}

// Each function computes one number of a transform: number `row` of its result.
template <int tile>
struct Transform;

template <>
struct Transform<2> {
  // B^T x
  template <int row>
  [[gnu::always_inline]] static Floats pixels(const Floats (&x)[4]) {
    if constexpr (row == 0) return x[0] - x[2];
    if constexpr (row == 1) return x[1] + x[2];
    if constexpr (row == 2) return x[2] - x[1];
    if constexpr (row == 3) return x[1] - x[3];
  }
  // A^T x
  template <int row>
  [[gnu::always_inline]] static Floats products(const Floats (&x)[4]) {
    if constexpr (row == 0) return x[0] + x[1] + x[2];
    if constexpr (row == 1) return x[1] - x[2] - x[3];
  }
  // A x
  template <int row>
  [[gnu::always_inline]] static Floats gradient(const Floats (&x)[2]) {
    if constexpr (row == 0) return x[0];
    if constexpr (row == 1) return x[0] + x[1];
    if constexpr (row == 2) return x[0] - x[1];
    if constexpr (row == 3) return _mm512_setzero_ps() - x[1];
  }
  // G x
  template <int row>
  [[gnu::always_inline]] static Floats filter(const Floats (&x)[3]) {
    if constexpr (row == 0) return x[0];
    if constexpr (row == 1) return times(0.5F, x[0] + x[2]) + times(0.5F, x[1]);
    if constexpr (row == 2) return times(0.5F, x[0] + x[2]) - times(0.5F, x[1]);
    if constexpr (row == 3) return x[2];
  }
  // G^T x
  template <int row>
  [[gnu::always_inline]] static Floats filter_gradient(const Floats (&x)[4]) {
    if constexpr (row == 0) return x[0] + times(0.5F, x[1] + x[2]);
    if constexpr (row == 1) return times(0.5F, x[1] - x[2]);
    if constexpr (row == 2) return times(0.5F, x[1] + x[2]) + x[3];
  }
};

template <>
struct Transform<3> {
  static constexpr float kA = 0.382F, kB = 1.28F, kA2 = kA * kA, kB2 = kB * kB;
  static constexpr float kOverA = 1 / (2 * kA * (kA2 - kB2)), kOverB = 1 / (2 * kB * (kB2 - kA2));
  // Rows 0 and 1 are at a and -a, rows 2 and 3 at b and -b.
  template <int row>
  static constexpr float kPoint = row < 2 ? kA : kB;
  template <int row>
  static constexpr float kPoint2 = row < 2 ? kA2 : kB2;
  template <int row>
  static constexpr float kOther2 = row < 2 ? kB2 : kA2;

  template <int row>
  [[gnu::always_inline]] static Floats pixels(const Floats (&x)[5]) {
    if constexpr (row == 4) return plus(plus(x[4], -kA2 - kB2, x[2]), kA2 * kB2, x[0]);
    const Floats even = times(kPoint<row>, plus(x[2], -kOther2<row>, x[0])), odd = plus(x[3], -kOther2<row>, x[1]);
    return row % 2 == 0 ? even + odd : even - odd;
  }
  template <int row>
  [[gnu::always_inline]] static Floats products(const Floats (&x)[5]) {
    if constexpr (row == 0) return (x[0] + x[1]) + (x[2] + x[3]);
    if constexpr (row == 1) return plus(times(kA, x[0] - x[1]), kB, x[2] - x[3]);
    if constexpr (row == 2) return plus(plus(x[4], kA2, x[0] + x[1]), kB2, x[2] + x[3]);
  }
  template <int row>
  [[gnu::always_inline]] static Floats gradient(const Floats (&x)[3]) {
    if constexpr (row == 4) return x[2];
    const Floats even = plus(x[0], kPoint2<row>, x[2]);
    return plus(even, row % 2 == 0 ? kPoint<row> : -kPoint<row>, x[1]);
  }
  template <int row>
  [[gnu::always_inline]] static Floats filter(const Floats (&x)[3]) {
    if constexpr (row == 4) return x[2];
    return times(row < 2 ? kOverA : kOverB, gradient<row>(x));
  }
  template <int row>
  [[gnu::always_inline]] static Floats filter_gradient(const Floats (&x)[5]) {
    if constexpr (row == 1) return plus(times(kA * kOverA, x[0] - x[1]), kB * kOverB, x[2] - x[3]);
    const Floats by_a = x[0] + x[1], by_b = x[2] + x[3];
    if constexpr (row == 0) return plus(times(kOverA, by_a), kOverB, by_b);
    if constexpr (row == 2) return plus(plus(x[4], kA2 * kOverA, by_a), kB2 * kOverB, by_b);
  }
};

// Sets row r of `to` to what `transform`, called as transform.operator()<first + r>(column), makes of each column of
// `from`: all `rows` rows of a transform, or some. Then the same is done with each row, for all its numbers.
template <int first, int rows, int columns, int height, int width, typename Apply>
[[gnu::always_inline]] inline void transform_square(const Floats (&from)[height][width], Floats (&to)[rows][columns],
                                                    const Apply& apply) {
  Floats half[rows][width];
  unrolled<width>([&]<int j>() __attribute__((always_inline)) {
    Floats column[height];
    unrolled<height>([&]<int i>() __attribute__((always_inline)) { column[i] = from[i][j]; });
    unrolled<rows>([&]<int r>()
                       __attribute__((always_inline)) { half[r][j] = apply.template operator()<first + r>(column); });
  });
  unrolled<rows>([&]<int r>() __attribute__((always_inline)) {
    unrolled<columns>([&]<int j>()
                          __attribute__((always_inline)) { to[r][j] = apply.template operator()<j>(half[r]); });
  });
}

// Computes rows [first, first + rows) of B^T pixels B.
template <int tile, int first, int rows>
[[gnu::always_inline]] inline void transform_pixels(const Floats (&d)[tile + 2][tile + 2],
                                                    Floats (&u)[rows][tile + 2]) {
  transform_square<first, rows>(
      d, u,
      []<int row>(const auto& x) __attribute__((always_inline)) { return Transform<tile>::template pixels<row>(x); });
}

// Computes A^T products A.
template <int tile>
[[gnu::always_inline]] inline void transform_products(const Floats (&m)[tile + 2][tile + 2], Floats (&y)[tile][tile]) {
  transform_square<0, tile>(
      m, y,
      []<int row>(const auto& x) __attribute__((always_inline)) { return Transform<tile>::template products<row>(x); });
}

// Computes rows [first, first + rows) of A gradient A^T.
template <int tile, int first, int rows>
[[gnu::always_inline]] inline void transform_gradient(const Floats (&y)[tile][tile], Floats (&z)[rows][tile + 2]) {
  transform_square<first, rows>(
      y, z,
      []<int row>(const auto& x) __attribute__((always_inline)) { return Transform<tile>::template gradient<row>(x); });
}

// Computes G filter G^T.
template <int tile>
[[gnu::always_inline]] inline void transform_filters(const Floats (&g)[3][3], Floats (&u)[tile + 2][tile + 2]) {
  transform_square<0, tile + 2>(
      g, u,
      []<int row>(const auto& x) __attribute__((always_inline)) { return Transform<tile>::template filter<row>(x); });
}

// Computes G^T gradient G.
template <int tile>
[[gnu::always_inline]] inline void transform_filter_gradient(const Floats (&u)[tile + 2][tile + 2], Floats (&g)[3][3]) {
  transform_square<0, 3>(
      u, g, []<int row>(const auto& x) __attribute__((always_inline)) {
        return Transform<tile>::template filter_gradient<row>(x);
      });
}

}  // namespace
}  // namespace trainyard::nn::cpu::winograd_bf16
