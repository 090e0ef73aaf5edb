// Tiles: their positions, their loads and stores, a channel block at a time.
#pragma once

#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd.h"
#include "trainyard/nn/cpu/simd/intrinsics.h"

namespace trainyard::nn::cpu::winograd_bf16 {
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

// Calls use.operator()<vectors>() for a number of vectors that is known when compiling: 1 to 4, a panel at most.
template <typename Use>
[[gnu::always_inline]] inline void with_vectors(int64_t vectors, const Use& use) {
  switch (vectors) {
    case 1:
      return use.template operator()<1>();
    case 2:
      return use.template operator()<2>();
    case 3:
      return use.template operator()<3>();
    default:
      return use.template operator()<4>();
  }
}

// Calls use.operator()<tile>() for the tile of a shape or of weights, known when compiling: 2 or 3.
template <typename Use>
[[gnu::always_inline]] inline void with_tile(int64_t tile, const Use& use) {
  tile == 2 ? use.template operator()<2>() : use.template operator()<3>();
}

// Returns the first `count` lanes: none for a negative count, all for one above kLanes.
[[gnu::always_inline]] inline __mmask16 lanes_before(int64_t count) {
  return static_cast<__mmask16>((1U << larger(0, smaller(count, kLanes))) - 1);
}

[[gnu::always_inline]] inline Floats load_bfloats(const uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Loads the lanes of the mask, and zeros: of others no memory is touched.
[[gnu::always_inline]] inline Floats load_bfloats(const uint16_t* from, __mmask16 lanes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from)), 16));
}
// Rounds to nearest, ties to even; subnormal numbers become zero.
[[gnu::always_inline]] inline void store_bfloats(uint16_t* to, Floats value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
}
// Stores pairs, lane by lane, with `first` in the lower half of 32 bits, as products of pairs require.
[[gnu::always_inline]] inline void store_pairs(void* to, Floats first, Floats second) {
  // Number i of `first`, the lower half, then number i of `second`: words i and 16 + i for each i.
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i places =
      _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)), _mm512_set1_epi32(0x100000));
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(places, both));
}

// The position of a tile: its sample, and its first pixel of the output.
struct Tile {
  int64_t sample, row, column;
};
[[gnu::always_inline]] inline Tile tile_at(const Shape& s, int64_t index) {
  const int64_t columns = s.tile_columns(), a_sample = s.tile_rows() * columns;
  return {.sample = index / a_sample, .row = index % a_sample / columns * s.tile, .column = index % columns * s.tile};
}

// Moves on to the next tile of the order that tile_at() counts in, without its divisions.
[[gnu::always_inline]] inline void advance(const Shape& s, Tile& tile) {
  tile.column += s.tile;
  if (tile.column < s.out_width) return;
  tile.column = 0;
  tile.row += s.tile;
  if (tile.row < s.out_height) return;
  tile.row = 0;
  ++tile.sample;
}

// Sets pixels[i][j] to the pixel at row + i, column + j, and to zero outside of the image, for i in [first, last).
// `block` is one channel block of one sample.
template <int first, int last, int size>
[[gnu::always_inline]] inline void load_rows(const uint16_t* block, int64_t height, int64_t width, int64_t row,
                                             int64_t column, Floats (&pixels)[size][size]) {
  if (row + first >= 0 && column >= 0 && row + last <= height && column + size <= width) {
    for (int i = first; i < last; ++i) {
      for (int j = 0; j < size; ++j) {
        pixels[i][j] = load_bfloats(block + ((row + i) * width + column + j) * kLanes);
      }
    }
    return;
  }
  __mmask16 inside[size];
  for (int j = 0; j < size; ++j) {
    inside[j] = column + j >= 0 && column + j < width ? static_cast<__mmask16>(~0U) : __mmask16{0};
  }
  for (int i = first; i < last; ++i) {
    const bool row_inside = row + i >= 0 && row + i < height;
    const uint16_t* const from = block + ((row_inside ? row + i : 0) * width + column) * kLanes;
    for (int j = 0; j < size; ++j) {
      pixels[i][j] = load_bfloats(from + j * kLanes, row_inside ? inside[j] : __mmask16{0});
    }
  }
}

// Returns the number of elements from one point's matrix to the next one's: `count`, and a cache line more, so that the
// points' matrices are not all in the same sets of the cache.
[[gnu::always_inline]] inline int64_t apart(int64_t count) {
  return (count + 31) / 32 * 32 + 32;
}

}  // namespace
}  // namespace trainyard::nn::cpu::winograd_bf16
