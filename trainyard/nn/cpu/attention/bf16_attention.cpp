// As attention.cpp, with products of pairs of neighbours in the dimension that is summed. The scores of a few queries
// are made, softened and rounded at a time, while they stay in a core's first cache.
#include "trainyard/nn/cpu/attention/bf16_attention.h"

#include "trainyard/nn/cpu/attention/rows.h"
#include "trainyard/nn/cpu/linear/bf16_pairs.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

using Pair = uint32_t;  // of bfloat16, the first in the lower half

constexpr int64_t kQueryBlock = 4 * bf16_linear::kRows;  // queries whose scores are made at once; an even number

// The matrices of one place. Channels are filled up with zeros to whole vectors of pairs.
struct Work : PlaceSizes {
  explicit Work(const AttentionPlaces& a)
      : PlaceSizes(a),
        row_pairs(bf16_linear::rounded_up(depth / 2, kLanes)),
        token_pairs(bf16_linear::rounded_up(padded / 2, kLanes)) {}

  const int64_t row_pairs, token_pairs;  // that a row of channels, and one of tokens, has room for
  const Matrix<Pair> queries{padded * row_pairs},
      rows{padded * row_pairs};                            // [padded, row_pairs]: rows of keys, values
  const Matrix<Pair> keys_across{row_pairs * padded};      // [row_pairs, padded]
  const Matrix<Pair> values{token_pairs * 2 * row_pairs};  // [token_pairs, channels]
  const Matrix<float> weights{kQueryBlock * padded};       // of some queries
  const Matrix<Pair> rounded{kQueryBlock * token_pairs};   // weights, or in the backward their gradients
  const Matrix<float> product{padded * depth};             // [padded, depth]
};

struct BackwardWork : Work {
  using Work::Work;

  const Matrix<Pair> gradients{padded * row_pairs};      // [padded, row_pairs]
  const Matrix<Pair> values_across{row_pairs * padded};  // [row_pairs, padded]
  const Matrix<Pair> keys{token_pairs * 2 * row_pairs}, query_pairs{token_pairs * 2 * row_pairs},
      gradient_pairs{token_pairs * 2 * row_pairs};   // [token_pairs, channels]
  const Matrix<float> slopes{kQueryBlock * padded};  // the scores' gradients, of some queries
  const Matrix<Pair> weight_pairs{token_pairs * padded}, slope_pairs{token_pairs * padded};  // of queries, by token
};

int64_t pairs_in(int64_t count) {
  return (count + 1) / 2;
}

void gather(const Work& w, const Place& at, const Tokens& map, const void* data, int64_t part, Pair* rows) {
  const auto* const from = static_cast<const uint16_t*>(data);
  each_block(w, at, map, part, [&](int64_t token, int64_t channel, int64_t element) {
    __builtin_memcpy(rows + token * w.row_pairs + channel / 2, from + element, kLanes * sizeof(uint16_t));
  });
}

// [padded, row_pairs] -> [row_pairs, padded]
void turn(const Work& w, const Pair* rows, Pair* columns) {
  for (int64_t t = 0; t < w.padded; t += kLanes) {
    for (int64_t p = 0; p < w.row_pairs; p += kLanes) {
      Floats square[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) square[i] = _mm512_loadu_ps(rows + (t + i) * w.row_pairs + p);
      transpose(square);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) _mm512_storeu_ps(columns + (p + i) * w.padded + t, square[i]);
    }
  }
}

// Pairs each channel of a token with that of the next: [padded, row_pairs] -> [padded / 2, 2 * row_pairs].
void pair_tokens(const Work& w, const Pair* rows, Pair* pairs) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t t = 0; t < w.padded; t += 2) {
    for (int64_t p = 0; p < w.row_pairs; p += kLanes) {
      const __m512i first = _mm512_loadu_si512(rows + t * w.row_pairs + p);
      const __m512i second = _mm512_loadu_si512(rows + (t + 1) * w.row_pairs + p);
      Pair* const to = pairs + t * w.row_pairs + 2 * p;
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(to + kLanes, _mm512_permutex2var_epi16(first, high, second));
    }
  }
}

// product [rows, columns] = left [rows, pairs] * right [pairs, columns]; `columns` is a multiple of kLanes.
struct Factor {
  const Pair* data;
  int64_t row, pair;  // strides
};
void multiply(const Factor& left, const Pair* right, int64_t right_row, float* product, int64_t rows, int64_t columns,
              int64_t pairs) {
  for (int64_t j = 0; j < columns; j += winograd_bf16::kPanel) {
    bf16_linear::multiply({.a = left.data,
                           .row_stride = left.row,
                           .pair_stride = left.pair,
                           .b = right + j,
                           .b_stride = right_row,
                           .pairs = pairs,
                           .out = product + j,
                           .out_stride = columns,
                           .columns = smaller(columns - j, winograd_bf16::kPanel),
                           .accumulate = false,
                           .stream = false},
                          rows);
  }
}

// Makes pairs of neighbours of `count` rows of weights or slopes.
void round_rows(const Work& w, const float* rows, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < w.padded; j += 2 * kLanes) {
      bf16_linear::store_pairs(w.rounded + i * w.token_pairs + j / 2,
                               bf16_linear::neighbours(rows + i * w.padded + j, w.padded - j));
    }
  }
}

// Makes pairs of the same token of neighbouring rows, of `count`; a row without a neighbour gets zeros, which are
// written behind it.
void pair_rows(const Work& w, float* rows, int64_t count, Pair* pairs) {
  if (count % 2 != 0) __builtin_memset(rows + count * w.padded, 0, static_cast<size_t>(w.padded) * sizeof(float));
  for (int64_t i = 0; i < count; i += 2) {
    const float *const first = rows + i * w.padded, *const second = first + w.padded;
    for (int64_t j = 0; j < w.padded; j += kLanes) {
      bf16_linear::store_pairs(pairs + i / 2 * w.padded + j,
                               bf16_linear::interleaved(load(first + j), load(second + j)));
    }
  }
}

// Sets `scores` to the products of `count` rows of queries, or gradients, and the keys, or values, across.
void score(const Work& w, const Pair* left, const Pair* across, int64_t count, float* scores) {
  multiply({left, w.row_pairs, 1}, across, w.padded, scores, count, w.padded, w.depth / 2);
}

void attend(const AttentionForward& a, Work& w, const Place& at) {
  gather(w, at, {3, a.places.pixels_in, w.asking}, a.input, kQueries, w.queries);
  gather(w, at, input_of(w), a.input, kKeys, w.rows);
  turn(w, w.rows, w.keys_across);
  gather(w, at, input_of(w), a.input, kValues, w.rows);
  pair_tokens(w, w.rows, w.values);
  float* const log_sums = a.log_sums == nullptr ? nullptr : a.log_sums + w.first_sum(at);
  for (int64_t first = 0; first < w.asking; first += kQueryBlock) {
    const int64_t count = smaller(kQueryBlock, w.asking - first);
    score(w, w.queries + first * w.row_pairs, w.keys_across, count, w.weights);
    float factors[kQueryBlock];
    for (int64_t i = 0; i < count; ++i) {
      factors[i] = softmax_numerators(w, at, first + i, w.weights + i * w.padded, w.scale(),
                                      log_sums == nullptr ? nullptr : log_sums + first + i);
    }
    round_rows(w, w.weights, count);
    float* const product = w.product + first * w.depth;
    multiply({w.rounded, w.token_pairs, 1}, w.values, 2 * w.row_pairs, product, count, w.depth, pairs_in(w.tokens));
    scale_rows(product, count, w.depth, factors);
  }
  scatter<Bfloat16>(w, at, output_of(w), w.product, 1, a.output, 0, false);
}

void attend_back(const AttentionBackward& a, BackwardWork& w, const Place& at) {
  gather(w, at, {3, a.places.pixels_in, w.asking}, a.input, kQueries, w.queries);
  pair_tokens(w, w.queries, w.query_pairs);
  gather(w, at, output_of(w), a.gradient, 0, w.gradients);
  pair_tokens(w, w.gradients, w.gradient_pairs);
  gather(w, at, input_of(w), a.input, kKeys, w.rows);
  turn(w, w.rows, w.keys_across);
  pair_tokens(w, w.rows, w.keys);
  gather(w, at, input_of(w), a.input, kValues, w.rows);
  turn(w, w.rows, w.values_across);
  const float* const log_sums = a.log_sums + w.first_sum(at);
  for (int64_t first = 0; first < w.asking; first += kQueryBlock) {
    const int64_t count = smaller(kQueryBlock, w.asking - first);
    score(w, w.queries + first * w.row_pairs, w.keys_across, count, w.weights);
    score(w, w.gradients + first * w.row_pairs, w.values_across, count, w.slopes);
    for (int64_t i = 0; i < count; ++i) {
      pass_back(w, at, first + i, w.weights + i * w.padded, w.slopes + i * w.padded, w.scale(), log_sums[first + i],
                a.bias_gradient);
    }
    pair_rows(w, w.weights, count, w.weight_pairs + first / 2 * w.padded);
    pair_rows(w, w.slopes, count, w.slope_pairs + first / 2 * w.padded);
    round_rows(w, w.slopes, count);
    multiply({w.rounded, w.token_pairs, 1}, w.keys, 2 * w.row_pairs, w.product + first * w.depth, count, w.depth,
             pairs_in(w.tokens));
  }
  for (int64_t i = w.asking * w.depth; i < w.tokens * w.depth; ++i) w.product[i] = 0;
  scatter<Bfloat16>(w, at, input_of(w), w.product, w.scale(), a.input_gradient, kQueries, a.accumulate);
  multiply({w.weight_pairs, 1, w.padded}, w.gradient_pairs, 2 * w.row_pairs, w.product, w.tokens, w.depth,
           pairs_in(w.asking));
  scatter<Bfloat16>(w, at, input_of(w), w.product, 1, a.input_gradient, kValues, a.accumulate);
  multiply({w.slope_pairs, 1, w.padded}, w.query_pairs, 2 * w.row_pairs, w.product, w.tokens, w.depth,
           pairs_in(w.asking));
  scatter<Bfloat16>(w, at, input_of(w), w.product, w.scale(), a.input_gradient, kKeys, a.accumulate);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA

namespace trainyard::nn::cpu::bf16_attention {

void forward(const AttentionForward& a) {
  using TRAINYARD_ISA::Work;
  TRAINYARD_ISA::each_place<Work>(
      a.places, [&](Work& work, const TRAINYARD_ISA::Place& at) { TRAINYARD_ISA::attend(a, work, at); });
}

void backward(const AttentionBackward& a) {
  using TRAINYARD_ISA::BackwardWork;
  TRAINYARD_ISA::clear_bias_gradient(a);
  TRAINYARD_ISA::each_place<BackwardWork>(
      a.places, [&](BackwardWork& work, const TRAINYARD_ISA::Place& at) { TRAINYARD_ISA::attend_back(a, work, at); });
}

}  // namespace trainyard::nn::cpu::bf16_attention
