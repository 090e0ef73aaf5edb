// The gradient of a bias: the sum of a map over samples and pixels, in float over a few pixels at a time, and of these
// sums in double. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Element is float or Bfloat16.
template <typename Element>
struct BiasGradient {
  int64_t batch = 0, blocks = 0, pixels = 0;  // pixels of an image
  int64_t together = 0;                       // pixels that are summed in float: a few hundred at most
  const Element* gradient = nullptr;          // a map
  float* sums = nullptr;                      // [count]
  int64_t count = 0;
};

// Adds `pixels` neighbouring pixels of one channel block, a few hundred at most, to the sums of its lanes: first in
// float, every `parts`th of them to the same sum, then in double. With one part each addition waits for the last one.
template <int parts, typename Element>
[[gnu::always_inline]] inline void add_pixels(const Element* from, int64_t pixels, double* sums) {
  static_assert(parts == 1 || parts == 4);
  Floats part[parts] = {};
  int64_t p = 0;
  for (; p + parts <= pixels; p += parts) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < parts; ++i) part[i] += load(from + (p + i) * kLanes);
  }
  for (; p < pixels; ++p) part[0] += load(from + p * kLanes);
  if constexpr (parts == 4) part[0] = (part[0] + part[1]) + (part[2] + part[3]);
  float lanes[kLanes];
  store(lanes, part[0]);
  for (int64_t c = 0; c < kLanes; ++c) sums[c] += static_cast<double>(lanes[c]);
}

// Called by all threads of a team, which share the channel blocks. It stays out of line, so that the kernels around
// it keep the registers that they had without it.
template <int parts, typename Element>
[[gnu::noinline]] inline void sum_bias_gradients(const BiasGradient<Element>& a) {
#pragma omp for schedule(static)
  for (int64_t b = 0; b < a.blocks; ++b) {
    double sums[kLanes] = {};
    for (int64_t n = 0; n < a.batch; ++n) {
      const Element* const from = a.gradient + (n * a.blocks + b) * a.pixels * kLanes;
      for (int64_t first = 0; first < a.pixels; first += a.together) {
        add_pixels<parts>(from + first * kLanes, smaller(a.together, a.pixels - first), sums);
      }
    }
    for (int64_t c = 0; c < smaller(kLanes, a.count - b * kLanes); ++c) {
      a.sums[b * kLanes + c] = static_cast<float>(sums[c]);
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
