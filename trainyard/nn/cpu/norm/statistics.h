// The statistics of batch normalization's forward, and what follows from them for each channel: for kernels that read
// the map once for the sums and once more to use them. Follows the rules of compiled_for.h.
//
// Sums of x - pivot and of its square are made in one pass. Over a span they are in fp32, and the pivot is the span's
// first pixel, so that a large mean does not cancel the variance. In double they are then moved to one pivot for each
// channel.
#pragma once

#include <math.h>

#include "trainyard/nn/cpu/elementwise/affine.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

template <typename T>
void collect(const T* input, const T* block_pivot, const Span& span, Sums& sums) {
  float from[kLanes], to[kLanes], sum[kLanes], squares[kLanes];
  // With an infinite pivot the mean would become NaN instead of infinite.
  store(from, finite_or_zero(load(input + span.begin)));
  store(to, finite_or_zero(load(block_pivot)));
  const PerLane<T> pivot(from);
  LaneSums<T> first, second;
  each_pixel(
      span, [&]<int pixels, int slot>(int64_t at) __attribute__((always_inline)) {
        Floats x[pixels];
        load_group<pixels>(input + at, x);
        for (int k = 0; k < pixels; ++k) {
          x[k] -= pivot.template part<pixels>(k);
          first.template part<pixels, slot>(k) += x[k];
          Floats& square = second.template part<pixels, slot>(k);
          square = multiply_add(x[k], x[k], square);
        }
      });
  first.store_to(sum);
  second.store_to(squares);
  const double count = static_cast<double>(span.samples * span.pixels);
  for (int64_t c = 0; c < kLanes; ++c) {
    const double move = static_cast<double>(from[c]) - to[c];
    sums.first[c] = sum[c] + count * move;
    sums.second[c] = squares[c] + move * (2.0 * sum[c] + count * move);
  }
}

// Means and biased variances of a block.
struct Moments {
  double mean[kLanes], variance[kLanes];
};

template <typename T>
Moments moments_of(const NormForward& a, int64_t block, const Sums& total) {
  Moments moments;
  float pivot[kLanes];
  store(pivot, finite_or_zero(load(static_cast<const T*>(a.input) + block * a.shape.pixels() * kLanes)));
  const double count = static_cast<double>(a.shape.batch * a.shape.pixels());
  for (int64_t c = 0; c < kLanes; ++c) {
    const double offset = total.first[c] / count;
    const double spread = total.second[c] / count - offset * offset;
    moments.mean[c] = offset + pivot[c];
    moments.variance[c] = spread < 0 ? 0 : spread;  // NaN stays
  }
  return moments;
}

// Writes mean, variance, scale and shift of a block, and returns what its second pass needs.
template <typename T>
Affine affine_of(const NormForward& a, int64_t block, const Moments& moments) {
  Affine affine = {.input = a.input, .residual = a.residual, .output = a.output, .mask = a.mask};
  affine.past_caches = a.output != a.input && a.output != a.residual && goes_past_caches<T>(a.shape, a.output);
  for (int64_t c = 0; c < kLanes; ++c) {
    const int64_t channel = block * kLanes + c;
    const bool inside = channel < a.shape.channels;
    const double weight = !inside ? 0 : a.weight != nullptr ? a.weight[channel] : 1;
    affine.inside[c] = inside ? 1 : 0;
    affine.scale[c] = static_cast<float>(weight / sqrt(moments.variance[c] + a.epsilon));
    affine.shift[c] = inside ? static_cast<float>(a.bias[channel] - moments.mean[c] * affine.scale[c]) : 0;
    a.mean[channel] = static_cast<float>(moments.mean[c]);
    a.variance[channel] = static_cast<float>(moments.variance[c]);
    a.scale[channel] = affine.scale[c];
    a.shift[channel] = affine.shift[c];
  }
  return affine;
}

template <typename T>
void collect_block(const NormForward& a, int64_t block, const Span& span, Sums& sums) {
  const T* const input = static_cast<const T*>(a.input);
  collect(input, input + block * a.shape.pixels() * kLanes, span, sums);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
