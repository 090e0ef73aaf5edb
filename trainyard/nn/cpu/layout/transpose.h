// Moves kLanes neighbouring pixels from kLanes planes (plain images) to a channel block, and back. Follows the rules of
// compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Transposes a square: each of log2(kLanes) rounds interleaves the upper half of the rows with the lower.
[[gnu::always_inline]] inline void transpose(Floats (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int64_t round = 1; round < kLanes; round *= 2) {
    Floats next[kLanes];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kLanes / 2; ++i) {
      const Floats a = rows[i], b = rows[i + kLanes / 2];
#if defined(TRAINYARD_KERNELS_AVX512)
      next[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#else
      next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#endif
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

// Returns the first `count` lanes.
[[gnu::always_inline]] inline Bits first_lanes(int64_t count) {
  return static_cast<Bits>((1U << count) - 1);
}

// Sets pixels[i] to the channels of pixel i, for `count` pixels of `channels` planes that are `stride` floats apart.
// All else becomes zero.
[[gnu::always_inline]] inline void load_planes(const float* planes, int64_t stride, int64_t channels, int64_t count,
                                               Floats (&pixels)[kLanes]) {
  if (channels == kLanes && count == kLanes) {
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) pixels[c] = load(planes + c * stride);
  } else {
    const Bits lanes = first_lanes(count);
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) pixels[c] = c < channels ? load_lanes(planes + c * stride, lanes) : Floats{};
  }
  transpose(pixels);
}

// Does the reverse: writes `count` pixels to `channels` planes. Overwrites `pixels`.
[[gnu::always_inline]] inline void store_planes(float* planes, int64_t stride, int64_t channels, int64_t count,
                                                Floats (&pixels)[kLanes]) {
  transpose(pixels);
  if (channels == kLanes && count == kLanes) {
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) store(planes + c * stride, pixels[c]);
  } else {
    const Bits lanes = first_lanes(count);
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) {
      if (c < channels) store_lanes(planes + c * stride, pixels[c], lanes);
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
