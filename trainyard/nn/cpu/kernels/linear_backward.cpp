// The backwards of a linear layer for a few samples. As in the forward, memory is the limit: the gradient of the input
// reads each weight once, that of the weights writes each number once, past the caches where there are many.
#include "trainyard/nn/cpu/kernels/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The sums of so many rows and vectors stay in registers.
constexpr int kSumRows = 6;
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kSumVectors = 4;
#else
constexpr int kSumVectors = 2;
#endif
constexpr int64_t kColumns = kSumVectors * kLanes;
// Rows of weights that a sweep over the columns sums up: few enough for the processor to fetch ahead in each.
constexpr int64_t kBand = 8;
// Gradients of weights that fit a cache are left there for the optimizer.
constexpr int64_t kCachedBytes = int64_t{8} << 20;
// Of the input, which all rows of a thread meet: they stay in its second-level cache.
constexpr int64_t kInputBytes = int64_t{256} << 10;

// sums [rows, columns] (+)= left [rows, depth] * right [depth, columns]. Products are added up before they are added to
// what the matrix holds, so that gradients of two passes that cancel leave zero.
struct Sums {
  const float* left;  // element (i, k) is left[i * left_row + k * left_column]
  int64_t left_row, left_column;
  const float* right;
  int64_t depth;
  float* sums;
  int64_t row;      // of right and sums: elements from one to the next
  int64_t columns;  // at most kColumns
  bool accumulate, stream;
};

// whole: all columns of a panel are there.
template <int rows, bool whole>
void add_up(const Sums& a) {
  const auto lanes_of = [&](int v) __attribute__((always_inline)) {
    return static_cast<Bits>((1ULL << smaller(larger(a.columns - v * kLanes, 0), kLanes)) - 1);
  };
  const auto read = [&](const float* from, int v) __attribute__((always_inline)) {
    return whole ? load(from + v * kLanes) : load_lanes(from + v * kLanes, lanes_of(v));
  };
  Floats sums[rows][kSumVectors] = {};
  for (int64_t k = 0; k < a.depth; ++k) {
    Floats line[kSumVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) line[v] = read(a.right + k * a.row, v);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const Floats value = fill(a.left[r * a.left_row + k * a.left_column]);
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) sums[r][v] = multiply_add(value, line[v], sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      float* const to = a.sums + r * a.row + v * kLanes;
      if (a.accumulate) sums[r][v] += read(a.sums + r * a.row, v);
      if (!whole) {
        store_lanes(to, sums[r][v], lanes_of(v));
      } else if (a.stream) {
        stream(to, sums[r][v]);
      } else {
        store(to, sums[r][v]);
      }
    }
  }
}

template <int rows>
void add_up(const Sums& a) {
  a.columns == kColumns ? add_up<rows, true>(a) : add_up<rows, false>(a);
}

void add_up_rows(Sums a, int64_t rows) {
  // Blocks of one height, where 8 would become 6 and 2.
  const int64_t blocks = (rows + kSumRows - 1) / kSumRows, height = (rows + blocks - 1) / blocks;
  for (; rows > 0; rows -= height) {
    switch (smaller(height, rows)) {
      case 1:
        add_up<1>(a);
        break;
      case 2:
        add_up<2>(a);
        break;
      case 3:
        add_up<3>(a);
        break;
      case 4:
        add_up<4>(a);
        break;
      case 5:
        add_up<5>(a);
        break;
      default:
        add_up<6>(a);
    }
    a.left += height * a.left_row;
    a.sums += height * a.row;
  }
}

}  // namespace

void linear_backward_data(const LinearBackwardData& a) {
  const int64_t panels = (a.in + kColumns - 1) / kColumns;
#pragma omp parallel
  for (int64_t band = 0; band < a.out; band += kBand) {
#pragma omp for nowait schedule(static)
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t column = panel * kColumns;
      add_up_rows({.left = a.output_gradient + band,
                   .left_row = a.out,
                   .left_column = 1,
                   .right = a.weight + band * a.in + column,
                   .depth = smaller(kBand, a.out - band),
                   .sums = a.input_gradient + column,
                   .row = a.in,
                   .columns = smaller(kColumns, a.in - column),
                   .accumulate = band > 0,
                   .stream = false},
                  a.batch);
    }
  }
}

void linear_backward_weights(const LinearBackwardWeights& a) {
  const bool aligned = a.in % kLanes == 0 && reinterpret_cast<uintptr_t>(a.weight_gradient) % 64 == 0;
  const bool past_caches = aligned && !a.accumulate && a.out * a.in * 4 > kCachedBytes;
  const int64_t wide = larger(kInputBytes / 4 / a.batch / kColumns, 1) * kColumns;
#pragma omp parallel
  {
    for (int64_t begin = 0; begin < a.in; begin += wide) {
#pragma omp for nowait schedule(static)
      for (int64_t first = 0; first < a.out; first += kSumRows) {
        for (int64_t column = begin; column < smaller(begin + wide, a.in); column += kColumns) {
          add_up_rows({.left = a.output_gradient + first,
                       .left_row = 1,
                       .left_column = a.out,
                       .right = a.input + column,
                       .depth = a.batch,
                       .sums = a.weight_gradient + first * a.in + column,
                       .row = a.in,
                       .columns = smaller(kColumns, a.in - column),
                       .accumulate = a.accumulate,
                       .stream = past_caches},
                      smaller(kSumRows, a.out - first));
        }
      }
    }
    if (past_caches) _mm_sfence();
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
