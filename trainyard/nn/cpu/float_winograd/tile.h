// The transforms of F(4x4, 3x3) on one channel block of one tile, and the tile's loads. Follows the rules of
// nn/cpu/kernels/compiled_for.h.
//
// With the points 0, a, -a, b, -b and infinity the matrices are
//   B^T = | a2b2   0    -a2-b2   0     1  0 |   A^T = | 1  1   1   1   1   0 |   G = | 1/a2b2   0      0    |
//         |  0   -a b2   -b2     a     1  0 |         | 0  a  -a   b  -b   0 |       | 1/n_a   a/n_a  a2/n_a |
//         |  0    a b2   -b2    -a     1  0 |         | 0  a2  a2  b2  b2  0 |       | 1/n_a  -a/n_a  a2/n_a |
//         |  0   -b a2   -a2     b     1  0 |         | 0  a3 -a3  b3 -b3  1 |       | 1/n_b   b/n_b  b2/n_b |
//         |  0    b a2   -a2    -b     1  0 |                                        | 1/n_b  -b/n_b  b2/n_b |
//         |  0    a2b2    0   -a2-b2   0  1 |                                        |  0       0      1    |
// where a2 is the square of a, and so on, n_a = 2 a2 (a2 - b2) and n_b = 2 b2 (b2 - a2).
#pragma once

#include "trainyard/nn/cpu/kernels/float_winograd_arguments.h"
#include "trainyard/nn/cpu/kernels/small_matrices.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kTile = FloatWinogradShape::kTile, kPoints = FloatWinogradShape::kPoints;
constexpr int kSide = 6;                       // of the square of input
constexpr int64_t kPanel = kVectors * kLanes;  // columns that one sweep of a matrix multiplication makes

constexpr float kA = 0.625F, kB = 1.5F, kA2 = kA * kA, kB2 = kB * kB;
constexpr float kOverA = 1 / (2 * kA2 * (kA2 - kB2)), kOverB = 1 / (2 * kB2 * (kB2 - kA2));

[[gnu::always_inline]] inline Floats times(float factor, Floats value) {
  return fill(factor) * value;
}
[[gnu::always_inline]] inline Floats plus(Floats sum, float factor, Floats value) {
  return multiply_add(fill(factor), value, sum);
}

// B^T x
[[gnu::always_inline]] inline void transform_pixels(const Floats (&x)[6], Floats (&y)[6]) {
  const Floats even_a = plus(x[4], -kB2, x[2]), odd_a = times(kA, plus(x[3], -kB2, x[1]));
  const Floats even_b = plus(x[4], -kA2, x[2]), odd_b = times(kB, plus(x[3], -kA2, x[1]));
  y[0] = plus(plus(x[4], -kA2 - kB2, x[2]), kA2 * kB2, x[0]);
  y[1] = even_a + odd_a;
  y[2] = even_a - odd_a;
  y[3] = even_b + odd_b;
  y[4] = even_b - odd_b;
  y[5] = plus(plus(x[5], -kA2 - kB2, x[3]), kA2 * kB2, x[1]);
}

// A^T x
[[gnu::always_inline]] inline void transform_products(const Floats (&x)[6], Floats (&y)[4]) {
  const Floats sum_a = x[1] + x[2], sum_b = x[3] + x[4], odd_a = x[1] - x[2], odd_b = x[3] - x[4];
  y[0] = x[0] + sum_a + sum_b;
  y[1] = plus(times(kA, odd_a), kB, odd_b);
  y[2] = plus(times(kA2, sum_a), kB2, sum_b);
  y[3] = plus(plus(x[5], kA2 * kA, odd_a), kB2 * kB, odd_b);
}

// A x
[[gnu::always_inline]] inline void transform_gradient(const Floats (&x)[4], Floats (&y)[6]) {
  const Floats even_a = plus(x[0], kA2, x[2]), odd_a = times(kA, plus(x[1], kA2, x[3]));
  const Floats even_b = plus(x[0], kB2, x[2]), odd_b = times(kB, plus(x[1], kB2, x[3]));
  y[0] = x[0];
  y[1] = even_a + odd_a;
  y[2] = even_a - odd_a;
  y[3] = even_b + odd_b;
  y[4] = even_b - odd_b;
  y[5] = x[3];
}

// G x
[[gnu::always_inline]] inline void transform_filter(const Floats (&x)[3], Floats (&y)[6]) {
  const Floats even_a = times(kOverA, plus(x[0], kA2, x[2])), odd_a = times(kA * kOverA, x[1]);
  const Floats even_b = times(kOverB, plus(x[0], kB2, x[2])), odd_b = times(kB * kOverB, x[1]);
  y[0] = times(1 / (kA2 * kB2), x[0]);
  y[1] = even_a + odd_a;
  y[2] = even_a - odd_a;
  y[3] = even_b + odd_b;
  y[4] = even_b - odd_b;
  y[5] = x[2];
}

// G^T x
[[gnu::always_inline]] inline void transform_back(const Floats (&x)[6], Floats (&y)[3]) {
  const Floats sum_a = times(kOverA, x[1] + x[2]), sum_b = times(kOverB, x[3] + x[4]);
  y[0] = plus(sum_a + sum_b, 1 / (kA2 * kB2), x[0]);
  y[1] = plus(times(kA * kOverA, x[1] - x[2]), kB * kOverB, x[3] - x[4]);
  y[2] = plus(plus(x[5], kA2, sum_a), kB2, sum_b);
}

// Applies a transform of `from` numbers to `to` numbers to the columns of a square, then to the rows of what that
// gives.
template <int from, int to>
[[gnu::always_inline]] inline void transform_square(void (*transform)(const Floats (&)[from], Floats (&)[to]),
                                                    const Floats (&x)[from][from], Floats (&y)[to][to]) {
  Floats half[to][from];
  for (int j = 0; j < from; ++j) {
    Floats column[from], transformed[to];
    for (int i = 0; i < from; ++i) column[i] = x[i][j];
    transform(column, transformed);
    for (int i = 0; i < to; ++i) half[i][j] = transformed[i];
  }
  for (int i = 0; i < to; ++i) transform(half[i], y[i]);
}

// Where a tile lies: its sample, and its first pixel of the output.
struct Tile {
  int64_t sample, row, column;
};
[[gnu::always_inline]] inline Tile tile_at(const FloatWinogradShape& s, int64_t index) {
  const int64_t columns = s.tile_columns(), a_sample = s.tile_rows() * columns;
  return {.sample = index / a_sample, .row = index % a_sample / columns * kTile, .column = index % columns * kTile};
}

// Sets pixels[i][j] to the pixel at row + i, column + j, and to zero outside of the image. `block` is one channel block
// of one sample.
template <int size>
[[gnu::always_inline]] inline void load_square(const float* block, int64_t height, int64_t width, int64_t row,
                                               int64_t column, Floats (&pixels)[size][size]) {
  if (row >= 0 && column >= 0 && row + size <= height && column + size <= width) {
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j) pixels[i][j] = load(block + ((row + i) * width + column + j) * kLanes);
    }
    return;
  }
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < size; ++j) {
      const bool inside = row + i >= 0 && row + i < height && column + j >= 0 && column + j < width;
      pixels[i][j] = inside ? load(block + ((row + i) * width + column + j) * kLanes) : Floats{};
    }
  }
}

// Returns the elements from one row of a matrix to the next: a cache line more than `columns`, so that rows which
// follow one another are not all in the same sets of the cache.
[[gnu::always_inline]] inline int64_t row_of(int64_t columns) {
  return columns + 16;
}

// Returns the elements from one point's matrix to the next one's: an odd number of cache lines, so that the 36 numbers
// of a transformed tile go to different sets of the cache.
[[gnu::always_inline]] inline int64_t apart(int64_t rows, int64_t columns) {
  return (rows * row_of(columns) / 16 | 1) * 16 + 32;
}

// Calls visit(tile, block) for all. Neighbouring tiles of one channel block follow each other, as they lie in the map:
// other orders read from too many places for the processor to fetch ahead. As many blocks as fill a cache line of the
// transformed numbers go together.
template <typename Visit>
[[gnu::always_inline]] inline void for_tiles(int64_t tiles, int64_t blocks, const Visit& visit) {
  constexpr int64_t kTogether = 16 / kLanes;
  for (int64_t first = 0; first < blocks; first += kTogether) {
    const int64_t end = smaller(first + kTogether, blocks);
    for (int64_t t = 0; t < tiles; ++t) {
      for (int64_t b = first; b < end; ++b) visit(t, b);
    }
  }
}

// Returns the first `count` elements at `from`, and zero in the lanes behind them.
[[gnu::always_inline]] inline Floats load_first(const float* from, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t c = 0; c < smaller(count, kLanes); ++c) lanes[c] = from[c];
  return load(lanes);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
