#include "trainyard/nn/cpu/linear/bf16_pairs.h"

namespace trainyard::nn::cpu::bf16_linear {
namespace {

// Rows of weights that a sweep over the columns sums up. With few samples memory is the limit, and rows of few streams
// come fastest; with many, sums that are stored and read again are.
constexpr int64_t kBand = 32, kNarrowBand = 8, kNarrowBandSamples = 16;

// Gradients of weights that fit a cache are left there for the optimizer.
constexpr int64_t kCachedBytes = int64_t{8} << 20;
// Bytes of the input's pairs, which all rows of a thread use.
constexpr int64_t kColumnBytes = int64_t{256} << 10;

int64_t pair_count(int64_t count) {
  return (count + 1) / 2;
}

// Returns floats `column` to `column + 15` of a row; null means a row of zeros.
[[gnu::always_inline]] inline Floats load_or_zeros(const float* row, int64_t column, int64_t columns) {
  if (row == nullptr) return _mm512_setzero_ps();
  if (column + kLanes <= columns) return _mm512_loadu_ps(row + column);
  return _mm512_maskz_loadu_ps(lanes_before(columns - column), row + column);
}

// Rounds a matrix's rows: [row][pair of neighbours], of which the last one of an odd count has a zero.
void round_rows(const float* from, int64_t rows, int64_t columns, uint32_t* to) {
  const int64_t pairs = pair_count(columns);
#pragma omp for
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t p = 0; p < pairs; p += kLanes) {
      const Pairs rounded = neighbours(from + row * columns + 2 * p, columns - 2 * p);
      _mm512_mask_storeu_epi32(to + row * pairs + p, lanes_before(pairs - p), reinterpret_cast<__m512i>(rounded));
    }
  }
}

// Rounds pairs of rows from `first` on: kPanel columns of each pair, `apart` pairs from the last one's.
void round_panel(const float* from, int64_t rows, int64_t columns, int64_t first, int64_t pairs, int64_t column,
                 uint32_t* to, int64_t apart) {
  for (int64_t p = 0; p < pairs; ++p) {
    const int64_t row = first + 2 * p;
    const float* const upper = from + row * columns;
    const float* const lower = row + 1 < rows ? upper + columns : nullptr;
    for (int64_t c = column; c < smaller(column + kPanel, columns); c += kLanes) {
      // The next panel of so many rows is more than the processor fetches ahead by itself.
      _mm_prefetch(upper + c + kPanel, _MM_HINT_T0);
      _mm_prefetch(upper + columns + c + kPanel, _MM_HINT_T0);
      store_pairs(to + p * apart + c - column,
                  interleaved(load_or_zeros(upper, c, columns), load_or_zeros(lower, c, columns)));
    }
  }
}

}  // namespace

int64_t backward_data_scratch_bytes(const Shape& shape) {
  return shape.batch * pair_count(shape.out) * 4;
}

void backward_data(const BackwardData& a) {
  const int64_t batch = a.shape.batch, in = a.shape.in, out = a.shape.out;
  auto* const gradient = static_cast<uint32_t*>(a.scratch);
  const int64_t panels = (in + kPanel - 1) / kPanel, rows = batch <= kNarrowBandSamples ? kNarrowBand : kBand;
#pragma omp parallel num_threads(a.threads)
  {
    round_rows(a.output_gradient, batch, out, gradient);
    alignas(64) uint32_t weights[kBand / 2 * kPanel];
    for (int64_t band = 0; band < out; band += rows) {
      const int64_t pairs = pair_count(smaller(rows, out - band));
#pragma omp for nowait schedule(static)
      for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t column = panel * kPanel;
        round_panel(a.weight, out, in, band, pairs, column, weights, kPanel);
        multiply({.a = gradient + band / 2,
                  .row_stride = pair_count(out),
                  .b = weights,
                  .b_stride = kPanel,
                  .pairs = pairs,
                  .out = a.input_gradient + column,
                  .out_stride = in,
                  .columns = smaller(kPanel, in - column),
                  .accumulate = band > 0,
                  .stream = false},
                 batch);
      }
    }
  }
}

// The samples' pairs for each output, and behind them those for each element of the input.
int64_t backward_weights_scratch_bytes(const Shape& shape) {
  return (rounded_up(pair_count(shape.batch) * shape.out, kLanes) +
          pair_count(shape.batch) * rounded_up(shape.in, kPanel)) *
         4;
}

void backward_weights(const BackwardWeights& a) {
  const int64_t batch = a.shape.batch, in = a.shape.in, out = a.shape.out;
  const int64_t pairs = pair_count(batch), apart = rounded_up(in, kPanel);
  auto* const gradient = static_cast<uint32_t*>(a.scratch);            // [output][pair]
  uint32_t* const input = gradient + rounded_up(pairs * out, kLanes);  // [pair][element]
  const bool aligned = in % kLanes == 0 && reinterpret_cast<uintptr_t>(a.weight_gradient) % 64 == 0;
  const bool stream = aligned && !a.accumulate && out * in * 4 > kCachedBytes;
  const int64_t wide = larger(kColumnBytes / 4 / pairs / kPanel, 1) * kPanel;
#pragma omp parallel num_threads(a.threads)
  {
#pragma omp for nowait
    for (int64_t panel = 0; panel < apart / kPanel; ++panel) {
      round_panel(a.input, batch, in, 0, pairs, panel * kPanel, input + panel * kPanel, apart);
    }
#pragma omp for
    for (int64_t first = 0; first < out; first += kPanel) {
      alignas(64) uint32_t columns[kPanel];
      for (int64_t p = 0; p < pairs; ++p) {
        round_panel(a.output_gradient, batch, out, 2 * p, 1, first, columns, kPanel);
        for (int64_t o = first; o < smaller(first + kPanel, out); ++o) gradient[o * pairs + p] = columns[o - first];
      }
    }
    for (int64_t begin = 0; begin < in; begin += wide) {
#pragma omp for nowait schedule(static)
      for (int64_t first = 0; first < out; first += kRows) {
        for (int64_t column = begin; column < smaller(begin + wide, in); column += kPanel) {
          multiply({.a = gradient + first * pairs,
                    .row_stride = pairs,
                    .b = input + column,
                    .b_stride = apart,
                    .pairs = pairs,
                    .out = a.weight_gradient + first * in + column,
                    .out_stride = in,
                    .columns = smaller(kPanel, in - column),
                    .accumulate = a.accumulate,
                    .stream = stream},
                   smaller(kRows, out - first));
        }
      }
    }
    if (stream) _mm_sfence();
  }
}

}  // namespace trainyard::nn::cpu::bf16_linear
