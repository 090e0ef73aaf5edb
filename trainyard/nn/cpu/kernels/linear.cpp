// A linear layer for a few samples. Each weight is read once, so the speed of memory is the limit. BLAS is far from it
// for such matrices.
#include "trainyard/nn/cpu/kernels/vector.h"

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

// Multiplies one row of weights with `samples` inputs, in four sums for each, so that no addition waits for another.
template <int samples>
void row(const LinearForward& a, int64_t out) {
  const float* const weight = a.weight + out * a.in;
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
    const Floats w = load_lanes(weight + i, lanes);
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
#pragma omp parallel for schedule(static)
  for (int64_t out = 0; out < a.out; ++out) row<samples>(a, out);
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

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
