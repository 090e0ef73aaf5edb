// The gradient of a bias: the sum of a float map over samples and pixels. Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

struct BiasGradient {
  int64_t batch = 0, blocks = 0, pixels = 0;  // pixels of an image
  const float* gradient = nullptr;            // a map
  float* sums = nullptr;                      // [count]
  int64_t count = 0;
};

// Adds `pixels` neighbouring pixels of one channel block, a few hundred at most, to the sums of its lanes: first in
// float, then in double.
inline void add_pixels(const float* from, int64_t pixels, double* sums) {
  Floats parts[4] = {};  // one would wait for its own last addition
  int64_t p = 0;
  for (; p + 4 <= pixels; p += 4) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) parts[i] += load(from + (p + i) * kLanes);
  }
  for (; p < pixels; ++p) parts[0] += load(from + p * kLanes);
  float lanes[kLanes];
  store(lanes, (parts[0] + parts[1]) + (parts[2] + parts[3]));
  for (int64_t c = 0; c < kLanes; ++c) sums[c] += static_cast<double>(lanes[c]);
}

// Called by all threads of a team, which share the channel blocks.
inline void sum_gradients(const BiasGradient& a) {
  constexpr int64_t kTogether = 192;
#pragma omp for schedule(static)
  for (int64_t b = 0; b < a.blocks; ++b) {
    double sums[kLanes] = {};
    for (int64_t n = 0; n < a.batch; ++n) {
      const float* const from = a.gradient + (n * a.blocks + b) * a.pixels * kLanes;
      for (int64_t first = 0; first < a.pixels; first += kTogether) {
        add_pixels(from + first * kLanes, smaller(kTogether, a.pixels - first), sums);
      }
    }
    for (int64_t c = 0; c < smaller(kLanes, a.count - b * kLanes); ++c) {
      a.sums[b * kLanes + c] = static_cast<float>(sums[c]);
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
