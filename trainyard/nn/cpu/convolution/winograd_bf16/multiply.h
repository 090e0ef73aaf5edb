// Matrix multiplication of bfloat16 with float sums, in blocks of at most 6 rows and 64 columns whose sums stay in
// registers (24 of 32).
#pragma once

#include "trainyard/nn/cpu/convolution/winograd_bf16/tile.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kRows = 6;

// Elements of `a` are pairs, two neighbours of the summed dimension: a[row * row_stride + k * pair_stride]. b: for each
// pair of the summed dimension, `b_stride` pairs apart, vectors of 16 pairs, `vector_stride` pairs apart. out: float
// rows `out_stride` apart.
struct Product {
  const uint32_t* a;
  int64_t row_stride, pair_stride;
  const uint32_t* b;
  int64_t b_stride, vector_stride;
  int64_t pairs;
  float* out;
  int64_t out_stride;
  bool accumulate;
  // Pairs from `b` to what is multiplied next, which is asked for meanwhile; 0: nothing.
  int64_t ahead = 0;
};

// Asks for the vectors [first, end) of each step of what is multiplied next, when there are any.
template <int rows, int vectors, bool asks>
void multiply_block(const Product& p, int64_t first = 0, int64_t end = 0) {
  Floats sums[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = p.accumulate ? _mm512_loadu_ps(p.out + r * p.out_stride + v * kLanes) : _mm512_setzero_ps();
    }
  }
  const uint32_t* a = p.a;
  const uint32_t* b = p.b;
  for (int64_t k = 0; k < p.pairs; ++k, a += p.pair_stride, b += p.b_stride) {
    if constexpr (asks) {
      for (int64_t v = first; v < end; ++v) _mm_prefetch(b + p.ahead + v * p.vector_stride, _MM_HINT_T1);
    }
    __m512bh columns[vectors];
    for (int v = 0; v < vectors; ++v) {
      columns[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + v * p.vector_stride));
    }
    for (int r = 0; r < rows; ++r) {
      const auto row = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[r * p.row_stride])));
      for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], row, columns[v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) _mm512_storeu_ps(p.out + r * p.out_stride + v * kLanes, sums[r][v]);
  }
}

template <int vectors, bool asks>
void multiply_rows(Product p, int64_t rows) {
  const int64_t blocks = (rows + kRows - 1) / kRows;
  int64_t block = 0;
  for (; rows >= kRows; rows -= kRows, ++block) {
    const int64_t first = vectors * block / blocks, end = vectors * (block + 1) / blocks;
    asks&& first < end ? multiply_block<kRows, vectors, asks>(p, first, end) : multiply_block<kRows, vectors, false>(p);
    p.a += kRows * p.row_stride;
    p.out += kRows * p.out_stride;
  }
  const int64_t first = vectors * block / larger(blocks, 1);
  switch (rows) {
    case 1:
      return multiply_block<1, vectors, asks>(p, first, vectors);
    case 2:
      return multiply_block<2, vectors, asks>(p, first, vectors);
    case 3:
      return multiply_block<3, vectors, asks>(p, first, vectors);
    case 4:
      return multiply_block<4, vectors, asks>(p, first, vectors);
    case 5:
      return multiply_block<5, vectors, asks>(p, first, vectors);
    default:
      return;
  }
}

// Computes all `rows` of the product. `columns` is 16, 32, 48 or 64.
inline void multiply(const Product& p, int64_t rows, int64_t columns) {
  with_vectors(columns / kLanes, [&]<int vectors>() {
    p.ahead > 0 ? multiply_rows<vectors, true>(p, rows) : multiply_rows<vectors, false>(p, rows);
  });
}

}  // namespace
}  // namespace trainyard::nn::cpu::winograd_bf16
