// Multiplies matrices of transformed numbers, in groups of 16 channels (tile.h). Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kGroup = 16;  // channels of a group: a cache line

// The products take kRows rows of the left matrix at a time.
constexpr int kRows = 6;

// The layout of the summed dimension, k, in the matrices. Units of kUnit of it are apart; kLeftStep and kRightStep are
// the elements from one k to the next within a unit (zero: what the matrix says), and kLeftRow those from one row of
// the left matrix to the next.
struct OverChannels {
  static constexpr int64_t kUnit = kGroup, kLeftStep = 1, kLeftRow = kGroup, kRightStep = 0;
};
struct OverTiles {
  static constexpr int64_t kUnit = 8, kLeftStep = kGroup, kLeftRow = 1, kRightStep = kGroup;
};

// Element (i, k) is data[i / kRows * rows + i % kRows * kLeftRow + k % kUnit * kLeftStep + k / kUnit * unit].
struct LeftMatrix {
  const float* data;
  int64_t rows, unit;
};

// Element (k, j) is data[k % kUnit * step + k / kUnit * unit + j / kGroup * group + j % kGroup].
struct RightMatrix {
  const float* data;
  int64_t step, group, unit;
};

// Element (i, j) is data[i / kRows * rows + i % kRows * row + j / kGroup * group + j % kGroup].
struct Product {
  float* data;
  int64_t rows, row, group;
};

[[gnu::always_inline]] inline int64_t vector_at(int64_t v, int64_t group) {
  return v * kLanes / kGroup * group + v * kLanes % kGroup;
}

// The size of a tile of the product. Registers hold its kRows * kVectors sums, a row of kVectors vectors, and one
// number in all lanes.
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif
constexpr int64_t kPanel = kVectors * kLanes;  // columns that one sweep makes

// Adds the products of index k to the sums.
template <int rows, int vectors>
[[gnu::always_inline]] inline void multiply_row(const float* numbers, int64_t left_row, const float* line,
                                                int64_t right_group, Floats (&sums)[rows][vectors]) {
  Floats right[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) right[v] = load(line + vector_at(v, right_group));
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    const Floats value = fill(numbers[r * left_row]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = multiply_add(value, right[v], sums[r][v]);
  }
}

// With `fetches`, prefetches the lines from `ahead` on, as many as the right matrix has, which are needed next.
template <typename Over, int rows, int vectors, bool fetches = false>
void multiply_tile(const LeftMatrix& left, const RightMatrix& right, const Product& product, int64_t depth,
                   bool accumulate, const float* ahead = nullptr) {
  Floats sums[rows][vectors] = {};
  if (accumulate) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = load(product.data + r * product.row + vector_at(v, product.group));
    }
  }
  const int64_t right_group = right.group;
  const int64_t right_step = Over::kRightStep != 0 ? Over::kRightStep : right.step;
  const float* numbers = left.data;
  const float* line = right.data;
  for (; depth >= Over::kUnit; depth -= Over::kUnit, numbers += left.unit, line += right.unit) {
    if constexpr (fetches) {
      constexpr int64_t kElements = Over::kUnit * vectors * kLanes;
      for (int64_t i = 0; i < kElements; i += kGroup) _mm_prefetch(ahead + i, _MM_HINT_T1);
      ahead += kElements;
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < Over::kUnit; ++k) {
      multiply_row<rows, vectors>(numbers + k * Over::kLeftStep, Over::kLeftRow, line + k * right_step, right_group,
                                  sums);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    multiply_row<rows, vectors>(numbers + k * Over::kLeftStep, Over::kLeftRow, line + k * right_step, right_group,
                                sums);
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) store(product.data + r * product.row + vector_at(v, product.group), sums[r][v]);
  }
}

template <typename Over, int vectors>
void multiply_columns(LeftMatrix left, const RightMatrix& right, Product product, int64_t rows, int64_t depth,
                      bool accumulate) {
  for (; rows >= kRows; rows -= kRows) {
    multiply_tile<Over, kRows, vectors>(left, right, product, depth, accumulate);
    left.data += left.rows;
    product.data += product.rows;
  }
  switch (rows) {
    case 1:
      return multiply_tile<Over, 1, vectors>(left, right, product, depth, accumulate);
    case 2:
      return multiply_tile<Over, 2, vectors>(left, right, product, depth, accumulate);
    case 3:
      return multiply_tile<Over, 3, vectors>(left, right, product, depth, accumulate);
    case 4:
      return multiply_tile<Over, 4, vectors>(left, right, product, depth, accumulate);
    case 5:
      return multiply_tile<Over, 5, vectors>(left, right, product, depth, accumulate);
    default:
      return;
  }
}

// Computes the product of a panel's kPanel columns, and prefetches the right matrix of the next product, which begins
// at `ahead` and is contiguous.
template <typename Over>
void multiply_fetching(LeftMatrix left, const RightMatrix& right, Product product, int64_t rows, int64_t depth,
                       bool accumulate, const float* ahead) {
  if (rows >= kRows) {
    multiply_tile<Over, kRows, kVectors, true>(left, right, product, depth, accumulate, ahead);
    left.data += left.rows;
    product.data += product.rows;
    rows -= kRows;
  }
  multiply_columns<Over, kVectors>(left, right, product, rows, depth, accumulate);
}

// Computes product(i, j) = sum over k < depth of left(i, k) * right(k, j), for i < rows and j < columns; with
// `accumulate` it adds the terms to product(i, j) one after the other. `columns` is a multiple of kLanes, and at most
// kPanel.
template <typename Over>
void multiply(const LeftMatrix& left, RightMatrix right, Product product, int64_t rows, int64_t columns, int64_t depth,
              bool accumulate) {
  if (columns == kPanel) return multiply_columns<Over, kVectors>(left, right, product, rows, depth, accumulate);
  while (columns > 0) {
    const int vectors = columns >= 2 * kLanes ? 2 : 1;
    (vectors == 2 ? multiply_columns<Over, 2> : multiply_columns<Over, 1>)(left, right, product, rows, depth,
                                                                           accumulate);
    right.data += vector_at(vectors, right.group);
    product.data += vector_at(vectors, product.group);
    columns -= vectors * kLanes;
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
