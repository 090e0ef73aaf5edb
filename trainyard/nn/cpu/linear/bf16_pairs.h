// Rounding to pairs of bfloat16, which vdpbf16ps multiplies, and a product of matrices of such pairs.
#pragma once

#include "trainyard/nn/cpu/convolution/winograd_bf16/tile.h"
#include "trainyard/nn/cpu/linear/bf16_linear.h"

namespace trainyard::nn::cpu::bf16_linear {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

using winograd_bf16::Floats;
using winograd_bf16::kLanes;
using winograd_bf16::kPanel;
using winograd_bf16::lanes_before;
using winograd_bf16::larger;
using winograd_bf16::smaller;
using winograd_bf16::with_vectors;
using Pairs = __m512bh;  // 16 pairs; subnormal numbers become zero

[[gnu::always_inline]] inline int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

[[gnu::always_inline]] inline Pairs load_pairs(const void* from) {
  return reinterpret_cast<Pairs>(_mm512_loadu_si512(from));
}
[[gnu::always_inline]] inline void store_pairs(void* to, Pairs value) {
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(value));
}
// Returns pairs of neighbours: (0, 1), (2, 3), ... of 32 floats. Those behind `count` count as zero and are not read.
[[gnu::always_inline]] inline Pairs neighbours(const float* from, int64_t count) {
  if (count >= 2 * kLanes) return _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + kLanes), _mm512_loadu_ps(from));
  return _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(lanes_before(count - kLanes), from + kLanes),
                             _mm512_maskz_loadu_ps(lanes_before(count), from));
}
// Returns the pairs (first[0], second[0]), (first[1], second[1]), ...
[[gnu::always_inline]] inline Pairs interleaved(Floats first, Floats second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return reinterpret_cast<Pairs>(
      _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first))));
}

// out [rows, columns] (+)= a [rows, pairs] * b [pairs, columns], with float sums. An element of `a` and `b` is a pair
// of neighbours in the summed dimension.
struct Product {
  const uint32_t* a;
  int64_t row_stride, pair_stride = 1;  // of a, in pairs
  const uint32_t* b;
  int64_t b_stride;  // in pairs; all columns of whole vectors are read
  int64_t pairs;
  float* out;
  int64_t out_stride;
  int64_t columns;          // up to kPanel
  bool accumulate, stream;  // stream: past the caches, for aligned whole vectors
};

template <int rows, int vectors>
void multiply_block(const Product& p) {
  Floats sums[rows][vectors] = {};
  const __mmask16 last = lanes_before(p.columns - (vectors - 1) * kLanes);
  const uint32_t* b = p.b;
  for (int64_t k = 0; k < p.pairs; ++k, b += p.b_stride) {
    Pairs columns[vectors];
    for (int v = 0; v < vectors; ++v) columns[v] = load_pairs(b + v * kLanes);
    for (int r = 0; r < rows; ++r) {
      const auto row =
          reinterpret_cast<Pairs>(_mm512_set1_epi32(static_cast<int>(p.a[r * p.row_stride + k * p.pair_stride])));
      for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], row, columns[v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    float* const out = p.out + r * p.out_stride;
    for (int v = 0; v < vectors; ++v) {
      if (p.accumulate) {
        const auto lanes = v == vectors - 1 ? last : static_cast<__mmask16>(0xFFFF);
        sums[r][v] += _mm512_maskz_loadu_ps(lanes, out + v * kLanes);
      }
      if (p.stream) {
        _mm512_stream_ps(out + v * kLanes, sums[r][v]);
      } else if (v < vectors - 1 || last == 0xFFFF) {
        _mm512_storeu_ps(out + v * kLanes, sums[r][v]);
      } else {
        _mm512_mask_storeu_ps(out + v * kLanes, last, sums[r][v]);
      }
    }
  }
}

constexpr int64_t kRows = 6;  // whose sums stay in registers, 24 of 32

template <int vectors>
void multiply_rows(Product p, int64_t rows) {
  // Blocks of one height, where 8 would become 6 and 2.
  const int64_t blocks = (rows + kRows - 1) / kRows, height = (rows + blocks - 1) / blocks;
  for (; rows > 0; rows -= height) {
    switch (smaller(height, rows)) {
      case 1:
        multiply_block<1, vectors>(p);
        break;
      case 2:
        multiply_block<2, vectors>(p);
        break;
      case 3:
        multiply_block<3, vectors>(p);
        break;
      case 4:
        multiply_block<4, vectors>(p);
        break;
      case 5:
        multiply_block<5, vectors>(p);
        break;
      default:
        multiply_block<6, vectors>(p);
    }
    p.a += height * p.row_stride;
    p.out += height * p.out_stride;
  }
}

inline void multiply(const Product& p, int64_t rows) {
  with_vectors((p.columns + kLanes - 1) / kLanes, [&]<int vectors>() { multiply_rows<vectors>(p, rows); });
}

}  // namespace
}  // namespace trainyard::nn::cpu::bf16_linear
