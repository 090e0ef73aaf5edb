// Numbers of 16 bits made of bytes. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/quantized/dot.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Numbers without a sign, whose sums may exceed their bits; they are read as numbers with a sign.
using Shorts [[gnu::vector_size(kLanes * 4)]] = uint16_t;

// Returns the bytes of two blocks.
[[gnu::always_inline]] inline Shorts load_pair(const uint8_t* low, const uint8_t* high) {
#if defined(TRAINYARD_KERNELS_AVX512)
  const __m256i both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                              _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  return __builtin_bit_cast(Shorts, _mm512_cvtepu8_epi16(both));
#else
  const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low));
  const __m128 both = _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(high));
  return __builtin_bit_cast(Shorts, _mm256_cvtepu8_epi16(_mm_castps_si128(both)));
#endif
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
