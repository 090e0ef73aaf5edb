// Every kernel source includes this first: it says which instruction set the source is compiled for, and has the scalar
// helpers of its loops. Everything here, and in the headers that follow these rules, has internal linkage (kernels.h
// explains why).
//
// Loops over lanes are written plainly, `for (int64_t c = 0; c < kLanes; ++c)`, over float[kLanes] locals: the compiler
// turns them into one vector instruction.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/simd/arguments.h"

#if defined(TRAINYARD_KERNELS_AVX512)
#define TRAINYARD_ISA avx512
#else
#define TRAINYARD_ISA avx2
#endif

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int64_t kLanes = 16;
#else
constexpr int64_t kLanes = 8;
#endif

struct Bfloat16 {
  uint16_t bits;
};

inline float widen(float value) {
  return value;
}
inline float widen(Bfloat16 value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

template <typename T>
inline T narrow(float value);
template <>
inline float narrow<float>(float value) {
  return value;
}
// Rounds to nearest, ties to even; NaN stays NaN.
template <>
inline Bfloat16 narrow<Bfloat16>(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return {static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded)};
}

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
