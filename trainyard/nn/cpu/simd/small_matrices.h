// Multiplies matrices that fit in a cache and are too small for a call of oneDNN to pay. Follows the rules of
// compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// A matrix: element (i, k) is data[i * row + k * column].
struct Strided {
  const float* data;
  int64_t row, column;  // strides
};

// The size of a tile. Registers hold its kRows * kVectors sums, a row of kVectors vectors, and one number in all lanes.
constexpr int kRows = 6;
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif

template <int rows, int vectors>
void multiply_tile(const Strided& left, const float* right, int64_t right_row, float* product, int64_t product_row,
                   int64_t depth, bool accumulate) {
  Floats sums[rows][vectors] = {};
  if (accumulate) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = load(product + r * product_row + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Floats line[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) line[v] = load(right + k * right_row + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const Floats value = fill(left.data[r * left.row + k * left.column]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = multiply_add(value, line[v], sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store(product + r * product_row + v * kLanes, sums[r][v]);
  }
}

template <int vectors>
void multiply_columns(Strided left, const float* right, int64_t right_row, float* product, int64_t product_row,
                      int64_t rows, int64_t depth, bool accumulate) {
  for (; rows >= kRows; rows -= kRows) {
    multiply_tile<kRows, vectors>(left, right, right_row, product, product_row, depth, accumulate);
    left.data += kRows * left.row;
    product += kRows * product_row;
  }
  switch (rows) {
    case 1:
      return multiply_tile<1, vectors>(left, right, right_row, product, product_row, depth, accumulate);
    case 2:
      return multiply_tile<2, vectors>(left, right, right_row, product, product_row, depth, accumulate);
    case 3:
      return multiply_tile<3, vectors>(left, right, right_row, product, product_row, depth, accumulate);
    case 4:
      return multiply_tile<4, vectors>(left, right, right_row, product, product_row, depth, accumulate);
    case 5:
      return multiply_tile<5, vectors>(left, right, right_row, product, product_row, depth, accumulate);
    default:
      return;
  }
}

// Computes product[i][j] = sum over k < depth of left(i, k) * right[k][j], for i < rows and j < columns; with
// `accumulate` it adds the terms to product[i][j] one after the other. `columns` is a multiple of kLanes; rows of right
// and product are `right_row` and `product_row` floats apart.
inline void multiply(const Strided& left, const float* right, int64_t right_row, float* product, int64_t product_row,
                     int64_t rows, int64_t columns, int64_t depth, bool accumulate = false) {
  int64_t j = 0;
  for (; j + kVectors * kLanes <= columns; j += kVectors * kLanes) {
    multiply_columns<kVectors>(left, right + j, right_row, product + j, product_row, rows, depth, accumulate);
  }
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
    multiply_columns<2>(left, right + j, right_row, product + j, product_row, rows, depth, accumulate);
  }
  for (; j < columns; j += kLanes) {
    multiply_columns<1>(left, right + j, right_row, product + j, product_row, rows, depth, accumulate);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
