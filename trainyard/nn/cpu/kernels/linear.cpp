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
      __builtin_unreachable();
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
