// Rows of weights times samples, both of which lie in the order of the sums: each sum is 16 partial ones, added up at
// the end.
#include "trainyard/nn/cpu/linear/bf16_pairs.h"

namespace trainyard::nn::cpu::bf16_linear {
namespace {

constexpr int64_t kStep = 2 * kLanes;  // elements that one instruction multiplies
// Samples and rows of weights whose sums stay in registers, 24 of 32.
constexpr int kSamples = 8, kFewSamples = 4, kOutputs = 3;
// Elements of a row that are summed at a time. The rounded samples of so many elements stay in the second-level cache.
constexpr int64_t kDepth = 4096;

// So many elements ahead, weights are asked for: the processor's own prefetching ends with each page.
constexpr int64_t kAhead = 512;
[[gnu::always_inline]] inline void prefetch_step(const float* from) {
  _mm_prefetch(from, _MM_HINT_T0);
  _mm_prefetch(from + kLanes, _MM_HINT_T0);
}

// A piece of the product: rows of weights from `output` on, elements from `begin` on.
struct Piece {
  int64_t output, sample, begin, count;
  const uint16_t* samples;  // rounded, of `begin`; `samples_apart` elements from one to the next
  int64_t samples_apart;
  const uint16_t* rounded;  // the rows of weights, kDepth apart; null: they are read in float
};

template <int outputs, int samples>
void multiply_piece(const Forward& a, const Piece& piece) {
  Floats sums[outputs][samples] = {};
  const float* const weight = a.weight + piece.output * a.shape.in + piece.begin;
  for (int64_t k = 0; k < piece.count; k += kStep) {
    Pairs rows[outputs];
    for (int r = 0; r < outputs; ++r) {
      if (piece.rounded == nullptr) prefetch_step(weight + r * a.shape.in + k + kAhead);
      rows[r] = piece.rounded != nullptr ? load_pairs(piece.rounded + r * kDepth + k)
                                         : neighbours(weight + r * a.shape.in + k, piece.count - k);
    }
    for (int n = 0; n < samples; ++n) {
      const Pairs sample = load_pairs(piece.samples + n * piece.samples_apart + k);
      for (int r = 0; r < outputs; ++r) sums[r][n] = _mm512_dpbf16_ps(sums[r][n], rows[r], sample);
    }
  }
  const int64_t real = smaller(samples, a.shape.batch - piece.sample);
  for (int r = 0; r < outputs; ++r) {
    const int64_t output = piece.output + r;
    for (int64_t n = 0; n < real; ++n) {
      float& to = a.output[(piece.sample + n) * a.shape.out + output];
      const float before = piece.begin > 0 ? to : a.bias != nullptr ? a.bias[output] : 0.0F;
      to = before + _mm512_reduce_add_ps(sums[r][n]);
    }
  }
}

template <int outputs>
void multiply_samples(const Forward& a, Piece piece) {
  const int64_t samples = rounded_up(a.shape.batch, kFewSamples);
  uint16_t rounded[outputs * kDepth];
  if (samples > kSamples) {
    const float* const weight = a.weight + piece.output * a.shape.in + piece.begin;
    for (int r = 0; r < outputs; ++r) {
      for (int64_t k = 0; k < piece.count; k += kStep) {
        prefetch_step(weight + r * a.shape.in + k + kAhead);
        store_pairs(rounded + r * kDepth + k, neighbours(weight + r * a.shape.in + k, piece.count - k));
      }
    }
    piece.rounded = rounded;
  }
  const uint16_t* const all = piece.samples;
  for (; piece.sample < samples; piece.sample += kSamples) {
    piece.samples = all + piece.sample * piece.samples_apart;
    if (samples - piece.sample >= kSamples) {
      multiply_piece<outputs, kSamples>(a, piece);
    } else {
      multiply_piece<outputs, kFewSamples>(a, piece);
    }
  }
}

// Rounds the samples; what fills up the last step and the last few samples is zero.
void round_samples(const Forward& a, uint16_t* to, int64_t apart) {
  const int64_t steps = apart / kStep;
#pragma omp for
  for (int64_t i = 0; i < rounded_up(a.shape.batch, kFewSamples) * steps; ++i) {
    const int64_t sample = i / steps, begin = i % steps * kStep;
    const int64_t count = sample < a.shape.batch ? a.shape.in - begin : 0;
    const float* const from = count > 0 ? a.input + sample * a.shape.in + begin : a.input;
    store_pairs(to + sample * apart + begin, neighbours(from, count));
  }
}

}  // namespace

int64_t forward_scratch_bytes(const Shape& shape) {
  return rounded_up(shape.batch, kFewSamples) * rounded_up(shape.in, kStep) * 2;
}

void forward(const Forward& a) {
  const int64_t apart = rounded_up(a.shape.in, kStep), groups = (a.shape.out + kOutputs - 1) / kOutputs;
  auto* const samples = static_cast<uint16_t*>(a.scratch);
#pragma omp parallel num_threads(a.threads)
  {
    round_samples(a, samples, apart);
    for (int64_t begin = 0; begin < a.shape.in; begin += kDepth) {
#pragma omp for nowait schedule(static)
      for (int64_t group = 0; group < groups; ++group) {
        Piece piece{.output = group * kOutputs,
                    .sample = 0,
                    .begin = begin,
                    .count = smaller(kDepth, a.shape.in - begin),
                    .samples = samples + begin,
                    .samples_apart = apart,
                    .rounded = nullptr};
        if (piece.output + kOutputs <= a.shape.out) {
          multiply_samples<kOutputs>(a, piece);
          continue;
        }
        for (; piece.output < a.shape.out; ++piece.output) multiply_samples<1>(a, piece);
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::bf16_linear
