// Matrix multiplication of floats in blocks of at most 6 rows whose sums stay in registers: 12 of 16 with AVX2, 24 of
// 32 with AVX-512.
#pragma once

#include "trainyard/nn/cpu/float_winograd/tile.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kRows = 6;
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif
constexpr int64_t kPanel = kVectors * kLanes;  // columns that one sweep makes

// out[r][c] (+)= sum over k of a[r * a_row + k * a_step] * b[k * b_step + c], for whole vectors of columns.
struct Product {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step;
  int64_t summed;
  float* out;
  int64_t out_row;
  bool accumulate;
};

template <int rows, int vectors>
[[gnu::always_inline]] inline void multiply_block(const Product& p) {
  Floats sums[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) sums[r][v] = p.accumulate ? load(p.out + r * p.out_row + v * kLanes) : Floats{};
  }
  const float *a = p.a, *b = p.b;
  const int64_t a_row = p.a_row, a_step = p.a_step, b_step = p.b_step;
  for (int64_t k = p.summed; k > 0; --k, a += a_step, b += b_step) {
    Floats columns[vectors];
    for (int v = 0; v < vectors; ++v) columns[v] = load(b + v * kLanes);
    for (int r = 0; r < rows; ++r) {
      const Floats row = fill(a[r * a_row]);
      for (int v = 0; v < vectors; ++v) sums[r][v] = multiply_add(row, columns[v], sums[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(p.out + r * p.out_row + v * kLanes, sums[r][v]);
  }
}

template <int vectors>
void multiply_rows(Product p, int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    multiply_block<kRows, vectors>(p);
    p.a += kRows * p.a_row;
    p.out += kRows * p.out_row;
  }
  switch (rows) {
    case 1:
      return multiply_block<1, vectors>(p);
    case 2:
      return multiply_block<2, vectors>(p);
    case 3:
      return multiply_block<3, vectors>(p);
    case 4:
      return multiply_block<4, vectors>(p);
    case 5:
      return multiply_block<5, vectors>(p);
    default:
      return;
  }
}

// Computes all `rows` of the product. `columns` is at most kPanel.
inline void multiply(const Product& p, int64_t rows, int64_t columns) {
  switch (columns / kLanes) {
    case 1:
      return multiply_rows<1>(p, rows);
#if defined(TRAINYARD_KERNELS_AVX512)
    case 2:
      return multiply_rows<2>(p, rows);
    case 3:
      return multiply_rows<3>(p, rows);
#endif
    default:
      return multiply_rows<kVectors>(p, rows);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
