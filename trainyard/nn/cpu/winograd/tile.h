// The three transforms of F(2x2, 3x3) on one channel block of one tile, and the tile's loads and stores.
#pragma once

// gcc 12 warns of the undefined operands that its own intrinsics use on purpose (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "trainyard/nn/cpu/winograd/winograd.h"

namespace trainyard::nn::cpu::winograd {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

using Floats = __m512;
constexpr int64_t kLanes = 16;
constexpr int64_t kPanel = 64;  // columns that one sweep of a matrix multiplication makes

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
[[gnu::always_inline]] inline int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// Returns the first `count` lanes: none for a negative count, all for one above kLanes.
[[gnu::always_inline]] inline __mmask16 lanes_before(int64_t count) {
  return static_cast<__mmask16>((1U << larger(0, smaller(count, kLanes))) - 1);
}

[[gnu::always_inline]] inline Floats load_bfloats(const uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Rounds to nearest, ties to even; subnormal numbers become zero.
[[gnu::always_inline]] inline void store_bfloats(uint16_t* to, Floats value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
}
// Stores pairs, lane by lane, with `first` in the lower half of 32 bits, as products of pairs want them.
[[gnu::always_inline]] inline void store_pairs(void* to, Floats first, Floats second) {
  const auto low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(first)));
  const auto high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(second)));
  _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// Where a tile lies: its sample, and its first pixel of the output.
struct Tile {
  int64_t sample, row, column;
};
[[gnu::always_inline]] inline Tile tile_at(const Shape& s, int64_t index) {
  const int64_t columns = s.tile_columns(), a_sample = s.tile_rows() * columns;
  return {.sample = index / a_sample, .row = index % a_sample / columns * 2, .column = index % columns * 2};
}

// Sets pixels[i][j] to the pixel at row + i, column + j, and to zero outside of the image. `block` is one channel block
// of one sample.
template <int size>
[[gnu::always_inline]] inline void load_square(const uint16_t* block, int64_t height, int64_t width, int64_t row,
                                               int64_t column, Floats (&pixels)[size][size]) {
  if (row >= 0 && column >= 0 && row + size <= height && column + size <= width) {
    for (int i = 0; i < size; ++i) {
      for (int j = 0; j < size; ++j) {
        pixels[i][j] = load_bfloats(block + ((row + i) * width + column + j) * kLanes);
      }
    }
    return;
  }
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < size; ++j) {
      const bool inside = row + i >= 0 && row + i < height && column + j >= 0 && column + j < width;
      pixels[i][j] = inside ? load_bfloats(block + ((row + i) * width + column + j) * kLanes) : _mm512_setzero_ps();
    }
  }
}

// B^T pixels B
[[gnu::always_inline]] inline void transform_pixels(Floats (&d)[4][4]) {
  for (int j = 0; j < 4; ++j) {
    const Floats d1 = d[1][j];
    d[0][j] = d[0][j] - d[2][j];
    d[1][j] = d1 + d[2][j];
    d[2][j] = d[2][j] - d1;
    d[3][j] = d1 - d[3][j];
  }
  for (int i = 0; i < 4; ++i) {
    const Floats d1 = d[i][1];
    d[i][0] = d[i][0] - d[i][2];
    d[i][1] = d1 + d[i][2];
    d[i][2] = d[i][2] - d1;
    d[i][3] = d1 - d[i][3];
  }
}

// A^T products A
[[gnu::always_inline]] inline void transform_products(const Floats (&m)[4][4], Floats (&y)[2][2]) {
  Floats rows[2][4];
  for (int j = 0; j < 4; ++j) {
    rows[0][j] = m[0][j] + m[1][j] + m[2][j];
    rows[1][j] = m[1][j] - m[2][j] - m[3][j];
  }
  for (int i = 0; i < 2; ++i) {
    y[i][0] = rows[i][0] + rows[i][1] + rows[i][2];
    y[i][1] = rows[i][1] - rows[i][2] - rows[i][3];
  }
}

// A gradient A^T
[[gnu::always_inline]] inline void transform_gradient(const Floats (&y)[2][2], Floats (&z)[4][4]) {
  const Floats zero = _mm512_setzero_ps();
  Floats rows[4][2];
  for (int j = 0; j < 2; ++j) {
    rows[0][j] = y[0][j];
    rows[1][j] = y[0][j] + y[1][j];
    rows[2][j] = y[0][j] - y[1][j];
    rows[3][j] = zero - y[1][j];
  }
  for (int i = 0; i < 4; ++i) {
    z[i][0] = rows[i][0];
    z[i][1] = rows[i][0] + rows[i][1];
    z[i][2] = rows[i][0] - rows[i][1];
    z[i][3] = zero - rows[i][1];
  }
}

// Returns the number of elements from one point's matrix to the next one's: `count`, and a cache line more, so that the
// sixteen matrices are not all in the same sets of the cache.
[[gnu::always_inline]] inline int64_t apart(int64_t count) {
  return (count + 31) / 32 * 32 + 32;
}

}  // namespace
}  // namespace trainyard::nn::cpu::winograd
