// What batch normalization's backward computes for a channel block, and its second pass: for kernels that make the
// gradient of the normalized map in a first pass of their own. Follows the rules of compiled_for.h.
#pragma once

#include <math.h>

#include "trainyard/nn/cpu/elementwise/activation.h"
#include "trainyard/nn/cpu/simd/waves.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// What both passes need of a block.
struct Block {
  float scale[kLanes], shift[kLanes], mean[kLanes];
  // For the second pass: input' = scale * (d - mean_gradient) + (input - mean) * slope. In this form a channel with a
  // single value gets exactly zero.
  float slope[kLanes], mean_gradient[kLanes];
};

inline Block block_of(const NormBackward& a, int64_t block) {
  Block result;
  for (int64_t c = 0; c < kLanes; ++c) {
    result.scale[c] = a.scale[block * kLanes + c];
    result.shift[c] = a.shift[block * kLanes + c];
    result.mean[c] = a.mean[block * kLanes + c];
  }
  return result;
}

// Loads d of the pixels from element `at` on, given their input x.
template <typename T, UnitActivation kind, bool has_mask, int pixels>
[[gnu::always_inline]] inline void load_gradient(const NormBackward& a, const PerLane<T>& scale,
                                                 const PerLane<T>& shift, int64_t at, const Floats* x, Floats* d) {
  load_group<pixels>(static_cast<const T*>(a.gradients[0]) + at, d);
  for (int g = 1; g < a.gradient_count; ++g) {
    Floats more[pixels];
    load_group<pixels>(static_cast<const T*>(a.gradients[g]) + at, more);
    for (int k = 0; k < pixels; ++k) d[k] += more[k];
  }
  if constexpr (has_mask) {
    keep_masked<T, pixels>(a.mask, at, d);
  } else {
    for (int k = 0; k < pixels; ++k) {
      d[k] = pass_back<kind>(d[k], multiply_add(x[k], scale.template part<pixels>(k), shift.template part<pixels>(k)));
    }
  }
}

// Returns a block for the second pass. `total` is over `count` values.
inline Block combine(const NormBackward& a, int64_t index, const Sums& total, double count) {
  Block block = block_of(a, index);
  for (int64_t c = 0; c < kLanes; ++c) {
    const double deviation = sqrt(a.variance[index * kLanes + c] + a.epsilon);
    const double weight_gradient = total.second[c] / deviation;
    block.slope[c] = static_cast<float>(-block.scale[c] * weight_gradient / (count * deviation));
    block.mean_gradient[c] = static_cast<float>(total.first[c] / count);
  }
  return block;
}

inline void write_parameter_gradients(const NormBackward& a, int64_t index, const Sums& total) {
  for (int64_t c = 0; c < kLanes; ++c) {
    const int64_t channel = index * kLanes + c;
    a.weight_gradient[channel] = static_cast<float>(total.second[c] / sqrt(a.variance[channel] + a.epsilon));
    a.bias_gradient[channel] = static_cast<float>(total.first[c]);
  }
}

template <typename T, UnitActivation kind, bool has_mask>
void apply(const NormBackward& a, const Block& block, bool past_caches, const Span& span) {
  const T* const input = static_cast<const T*>(a.input);
  T* const output = static_cast<T*>(a.input_gradient);
  const PerLane<T> scale(block.scale), shift(block.shift), mean(block.mean), slope(block.slope);
  const PerLane<T> mean_gradient(block.mean_gradient);
  each_pixel(
      span, [&]<int pixels, int>(int64_t at) __attribute__((always_inline)) {
        Floats x[pixels], d[pixels];
        load_group<pixels>(input + at, x);
        load_gradient<T, kind, has_mask, pixels>(a, scale, shift, at, x, d);
        for (int k = 0; k < pixels; ++k) {
          const Floats centred = (x[k] - mean.template part<pixels>(k)) * slope.template part<pixels>(k);
          d[k] = multiply_add(d[k] - mean_gradient.template part<pixels>(k), scale.template part<pixels>(k), centred);
        }
        store_group<pixels>(output + at, d, past_caches);
      });
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
