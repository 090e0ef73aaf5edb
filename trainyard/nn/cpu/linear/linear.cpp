// A linear layer for a few samples. Each weight is read once, so the speed of memory is the limit. BLAS is far from it
// for such matrices. The gradient of the weights is written past the caches where it is large.
#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

float sum_of_lanes(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

Floats load_rest(const float* from, Bits lanes) {
  return load_lanes(from, lanes);
}
Floats load_rest(const Bfloat16* from, Bits lanes) {
  Bfloat16 values[kLanes] = {};
  for (int64_t c = 0; c < kLanes; ++c) {
    if (((lanes >> c) & 1) != 0) values[c] = from[c];
  }
  return load(values);
}

// Multiplies one row of weights with `samples` inputs, in four sums for each, so that no addition waits for another.
template <int samples, typename Weight>
void row(const LinearForward& a, const Weight* weights, int64_t out) {
  const Weight* const weight = weights + out * a.in;
  Floats sums[samples][4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= a.in; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const Floats w = load(weight + i + part * kLanes);
#pragma GCC unroll 4
      for (int n = 0; n < samples; ++n) {
        sums[n][part] = multiply_add(w, load(a.input + n * a.in + i + part * kLanes), sums[n][part]);
      }
    }
  }
  for (; i < a.in; i += kLanes) {
    const Bits lanes = static_cast<Bits>((1U << smaller(a.in - i, kLanes)) - 1);
    const Floats w = load_rest(weight + i, lanes);
    for (int n = 0; n < samples; ++n) {
      sums[n][0] = multiply_add(w, load_lanes(a.input + n * a.in + i, lanes), sums[n][0]);
    }
  }
  const float bias = a.bias != nullptr ? a.bias[out] : 0.0F;
  for (int n = 0; n < samples; ++n) {
    a.output[n * a.out + out] = sum_of_lanes((sums[n][0] + sums[n][1]) + (sums[n][2] + sums[n][3])) + bias;
  }
}

// More samples go through the rows of weights a few at a time: as many rows and samples as have their sums in
// registers.
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kOutputs = 3, kSamples = 8;
#else
constexpr int kOutputs = 3, kSamples = 4;
#endif
// So many elements ahead, weights are asked for: the processor's own prefetching ends with each page.
constexpr int64_t kAhead = 512;

template <int outputs, int samples>
void block(const LinearForward& a, int64_t output, int64_t sample) {
  Floats sums[outputs][samples] = {};
  const float* const weight = a.weight + output * a.in;
  const float* const input = a.input + sample * a.in;
  int64_t i = 0;
  for (; i + kLanes <= a.in; i += kLanes) {
    Floats rows[outputs];
#pragma GCC unroll 3
    for (int o = 0; o < outputs; ++o) {
      __builtin_prefetch(weight + o * a.in + i + kAhead);
      rows[o] = load(weight + o * a.in + i);
    }
#pragma GCC unroll 8
    for (int n = 0; n < samples; ++n) {
      const Floats x = load(input + n * a.in + i);
#pragma GCC unroll 3
      for (int o = 0; o < outputs; ++o) sums[o][n] = multiply_add(rows[o], x, sums[o][n]);
    }
  }
  if (i < a.in) {
    const Bits lanes = static_cast<Bits>((1U << (a.in - i)) - 1);
    for (int o = 0; o < outputs; ++o) {
      const Floats row = load_lanes(weight + o * a.in + i, lanes);
      for (int n = 0; n < samples; ++n) {
        sums[o][n] = multiply_add(row, load_lanes(input + n * a.in + i, lanes), sums[o][n]);
      }
    }
  }
  for (int o = 0; o < outputs; ++o) {
    const float bias = a.bias != nullptr ? a.bias[output + o] : 0.0F;
    for (int n = 0; n < samples; ++n) a.output[(sample + n) * a.out + output + o] = sum_of_lanes(sums[o][n]) + bias;
  }
}

template <int outputs>
void blocks(const LinearForward& a, int64_t output) {
  int64_t sample = 0;
  for (; sample + kSamples <= a.batch; sample += kSamples) block<outputs, kSamples>(a, output, sample);
  for (; sample + 4 <= a.batch; sample += 4) block<outputs, 4>(a, output, sample);
  for (; sample < a.batch; ++sample) block<outputs, 1>(a, output, sample);
}

void many_samples(const LinearForward& a) {
  const int64_t groups = (a.out + kOutputs - 1) / kOutputs;
#pragma omp parallel for schedule(static)
  for (int64_t group = 0; group < groups; ++group) {
    int64_t output = group * kOutputs;
    if (output + kOutputs <= a.out) {
      blocks<kOutputs>(a, output);
      continue;
    }
    for (; output < a.out; ++output) blocks<1>(a, output);
  }
}

template <int samples>
void rows(const LinearForward& a) {
  const auto* const rounded = static_cast<const Bfloat16*>(a.rounded_weight);
#pragma omp parallel for schedule(static)
  for (int64_t out = 0; out < a.out; ++out) {
    rounded == nullptr ? row<samples>(a, a.weight, out) : row<samples>(a, rounded, out);
  }
}

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
// Bytes of the input, which all rows of a thread use: they stay in its second-level cache.
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
  const int64_t count = (rows + kSumRows - 1) / kSumRows, height = (rows + count - 1) / count;
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

void linear_forward(const LinearForward& a) {
  switch (a.batch) {
    case 1:
      return rows<1>(a);
    case 2:
      return rows<2>(a);
    case 3:
      return rows<3>(a);
    case 4:
      return rows<4>(a);
    default:
      return many_samples(a);
  }
}

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
