// A row of a depthwise window with stride 1 over neighbouring pixels. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Pixels whose sums, with what they read, fill the registers.
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kNeighbours = 8;
#else
constexpr int kNeighbours = 4;
#endif

// Adds to sums[u] pixels u to u + width - 1 times the weights of a row of a depthwise window, which lie `next` floats
// apart. A pixel that is loaded serves all sums that it belongs to.
template <int width>
[[gnu::always_inline]] inline void add_sliding_row(Floats (&sums)[kNeighbours], const float* pixels,
                                                   const float* weights, int64_t next) {
  Floats values[kNeighbours + width - 1];
#pragma GCC unroll 16
  for (int i = 0; i < kNeighbours + width - 1; ++i) values[i] = load(pixels + i * kLanes);
#pragma GCC unroll 8
  for (int k = 0; k < width; ++k) {
    const Floats weight = load(weights + k * next);
#pragma GCC unroll 8
    for (int u = 0; u < kNeighbours; ++u) sums[u] = multiply_add(values[u + k], weight, sums[u]);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
