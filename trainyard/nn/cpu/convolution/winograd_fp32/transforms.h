// The transforms of F(4x4, 3x3) and F(2x2, 3x3): each in one dimension, and how they are applied to a square, which is
// one channel block of one tile. Follows the rules of nn/cpu/simd/compiled_for.h.
//
// With the points 0, a, -a, b, -b and infinity the matrices of F(4x4, 3x3) are
//   B^T = | a2b2   0    -a2-b2   0     1  0 |   A^T = | 1  1   1   1   1   0 |   G = | 1/a2b2   0      0    |
//         |  0   -a b2   -b2     a     1  0 |         | 0  a  -a   b  -b   0 |       | 1/n_a   a/n_a  a2/n_a |
//         |  0    a b2   -b2    -a     1  0 |         | 0  a2  a2  b2  b2  0 |       | 1/n_a  -a/n_a  a2/n_a |
//         |  0   -b a2   -a2     b     1  0 |         | 0  a3 -a3  b3 -b3  1 |       | 1/n_b   b/n_b  b2/n_b |
//         |  0    b a2   -a2    -b     1  0 |                                        | 1/n_b  -b/n_b  b2/n_b |
//         |  0    a2b2    0   -a2-b2   0  1 |                                        |  0       0      1    |
// where a2 is the square of a, and so on, n_a = 2 a2 (a2 - b2) and n_b = 2 b2 (b2 - a2). Those of F(2x2, 3x3) are, with
// the points 0, 1, -1 and infinity,
//   B^T = | 1   0  -1  0 |   A^T = | 1  1   1  0 |   G = |  1    0    0  |
//         | 0   1   1  0 |         | 0  1  -1  1 |       | 1/2  1/2  1/2 |
//         | 0  -1   1  0 |                               | 1/2 -1/2  1/2 |
//         | 0  -1   0  1 |                               |  0    0    1  |
//
// A transform is a type with kFrom numbers that go in, kTo that come out, and apply<pair>(x, first, second), which
// computes the two of them that are number kPlaces[pair][0] and kPlaces[pair][1]: at the points p and -p the same
// products are added and subtracted. A square is transformed one such pair of rows at a time, since that many numbers
// stay in registers.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr float kA = 0.625F, kB = 1.5F, kA2 = kA * kA, kB2 = kB * kB;
constexpr float kOverA = 1 / (2 * kA2 * (kA2 - kB2)), kOverB = 1 / (2 * kB2 * (kB2 - kA2));

[[gnu::always_inline]] inline Floats times(float factor, Floats value) {
  return fill(factor) * value;
}
[[gnu::always_inline]] inline Floats plus(Floats sum, float factor, Floats value) {
  return multiply_add(fill(factor), value, sum);
}

// B^T x
template <int tile>
struct Pixels;
template <>
struct Pixels<4> {
  static constexpr int kFrom = 6, kTo = 6, kPairs = 3, kPlaces[kPairs][2] = {{0, 5}, {1, 2}, {3, 4}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[6], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      first = plus(plus(x[4], -kA2 - kB2, x[2]), kA2 * kB2, x[0]);
      second = plus(plus(x[5], -kA2 - kB2, x[3]), kA2 * kB2, x[1]);
    } else {
      constexpr float kPoint = pair == 1 ? kA : kB, kOther2 = pair == 1 ? kB2 : kA2;
      const Floats even = plus(x[4], -kOther2, x[2]), odd = times(kPoint, plus(x[3], -kOther2, x[1]));
      first = even + odd;
      second = even - odd;
    }
  }
};
template <>
struct Pixels<2> {
  static constexpr int kFrom = 4, kTo = 4, kPairs = 2, kPlaces[kPairs][2] = {{0, 3}, {1, 2}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[4], Floats& first, Floats& second) {
    first = pair == 0 ? x[0] - x[2] : x[2] + x[1];
    second = pair == 0 ? x[3] - x[1] : x[2] - x[1];
  }
};

// A^T x
template <int tile>
struct Products;
template <>
struct Products<4> {
  static constexpr int kFrom = 6, kTo = 4, kPairs = 2, kPlaces[kPairs][2] = {{0, 2}, {1, 3}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[6], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      const Floats sum_a = x[1] + x[2], sum_b = x[3] + x[4];
      first = x[0] + sum_a + sum_b;
      second = plus(times(kA2, sum_a), kB2, sum_b);
    } else {
      const Floats odd_a = x[1] - x[2], odd_b = x[3] - x[4];
      first = plus(times(kA, odd_a), kB, odd_b);
      second = plus(plus(x[5], kA2 * kA, odd_a), kB2 * kB, odd_b);
    }
  }
};
template <>
struct Products<2> {
  static constexpr int kFrom = 4, kTo = 2, kPairs = 1, kPlaces[kPairs][2] = {{0, 1}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[4], Floats& first, Floats& second) {
    first = x[0] + (x[1] + x[2]);
    second = (x[1] - x[2]) + x[3];
  }
};

// A x
template <int tile>
struct Gradient;
template <>
struct Gradient<4> {
  static constexpr int kFrom = 4, kTo = 6, kPairs = 3, kPlaces[kPairs][2] = {{0, 5}, {1, 2}, {3, 4}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[4], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      first = x[0];
      second = x[3];
    } else {
      constexpr float kPoint = pair == 1 ? kA : kB, kSquare = kPoint * kPoint;
      const Floats even = plus(x[0], kSquare, x[2]), odd = times(kPoint, plus(x[1], kSquare, x[3]));
      first = even + odd;
      second = even - odd;
    }
  }
};
template <>
struct Gradient<2> {
  static constexpr int kFrom = 2, kTo = 4, kPairs = 2, kPlaces[kPairs][2] = {{0, 3}, {1, 2}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[2], Floats& first, Floats& second) {
    first = pair == 0 ? x[0] : x[0] + x[1];
    second = pair == 0 ? x[1] : x[0] - x[1];
  }
};

// G x
template <int tile>
struct Filter;
template <>
struct Filter<4> {
  static constexpr int kFrom = 3, kTo = 6, kPairs = 3, kPlaces[kPairs][2] = {{0, 5}, {1, 2}, {3, 4}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[3], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      first = times(1 / (kA2 * kB2), x[0]);
      second = x[2];
    } else {
      constexpr float kPoint = pair == 1 ? kA : kB, kOver = pair == 1 ? kOverA : kOverB;
      const Floats even = times(kOver, plus(x[0], kPoint * kPoint, x[2])), odd = times(kPoint * kOver, x[1]);
      first = even + odd;
      second = even - odd;
    }
  }
};
template <>
struct Filter<2> {
  static constexpr int kFrom = 3, kTo = 4, kPairs = 2, kPlaces[kPairs][2] = {{0, 3}, {1, 2}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[3], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      first = x[0];
      second = x[2];
    } else {
      const Floats even = times(0.5F, x[0] + x[2]), odd = times(0.5F, x[1]);
      first = even + odd;
      second = even - odd;
    }
  }
};

// G^T x. The second pair has no second number; it is overwritten by the first one.
template <int tile>
struct FilterGradient;
template <>
struct FilterGradient<4> {
  static constexpr int kFrom = 6, kTo = 3, kPairs = 2, kPlaces[kPairs][2] = {{0, 2}, {1, 1}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[6], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      const Floats sum_a = times(kOverA, x[1] + x[2]), sum_b = times(kOverB, x[3] + x[4]);
      first = plus(sum_a + sum_b, 1 / (kA2 * kB2), x[0]);
      second = plus(plus(x[5], kA2, sum_a), kB2, sum_b);
    } else {
      first = second = plus(times(kA * kOverA, x[1] - x[2]), kB * kOverB, x[3] - x[4]);
    }
  }
};
template <>
struct FilterGradient<2> {
  static constexpr int kFrom = 4, kTo = 3, kPairs = 2, kPlaces[kPairs][2] = {{0, 2}, {1, 1}};
  template <int pair>
  [[gnu::always_inline]] static void apply(const Floats (&x)[4], Floats& first, Floats& second) {
    if constexpr (pair == 0) {
      const Floats sum = times(0.5F, x[1] + x[2]);
      first = x[0] + sum;
      second = sum + x[3];
    } else {
      first = second = times(0.5F, x[1] - x[2]);
    }
  }
};

template <typename Transform, int pair = 0>
[[gnu::always_inline]] inline void transform_all(const Floats (&x)[Transform::kFrom], Floats (&y)[Transform::kTo]) {
  constexpr const int(&kPlaces)[2] = Transform::kPlaces[pair];
  Transform::template apply<pair>(x, y[kPlaces[0]], y[kPlaces[1]]);
  if constexpr (pair + 1 < Transform::kPairs) transform_all<Transform, pair + 1>(x, y);
}

// Applies the transform to the columns of a square, then to the rows of what that gives. read(i, j) returns a number of
// the square, and may be called more than once for it; write(i, j, value) takes one of the result.
template <typename Transform, int pair = 0, typename Read, typename Write>
[[gnu::always_inline]] inline void transform_square(const Read& read, const Write& write) {
  constexpr int kFrom = Transform::kFrom, kTo = Transform::kTo;
  Floats rows[2][kFrom];
#pragma GCC unroll 6
  for (int j = 0; j < kFrom; ++j) {
    Floats column[kFrom];
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i) column[i] = read(i, j);
    Transform::template apply<pair>(column, rows[0][j], rows[1][j]);
  }
  constexpr const int(&kPlaces)[2] = Transform::kPlaces[pair];
#pragma GCC unroll 2
  for (int r = 0; r < (kPlaces[0] == kPlaces[1] ? 1 : 2); ++r) {
    Floats y[kTo];
    transform_all<Transform>(rows[r], y);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) write(kPlaces[r], j, y[j]);
  }
  if constexpr (pair + 1 < Transform::kPairs) transform_square<Transform, pair + 1>(read, write);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
