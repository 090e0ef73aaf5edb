// Stores the index in its window of the pixel that an element came from: one byte per lane. Follows the rules of
// compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

#if defined(TRAINYARD_KERNELS_AVX512)
struct WindowIndexes {
  __m128i bytes;

  [[gnu::always_inline]] explicit WindowIndexes(int64_t index) : bytes(_mm_set1_epi8(static_cast<char>(index))) {}
  // Sets `index` where a = b.
  [[gnu::always_inline]] void set_where_equal(Floats a, Floats b, int64_t index) {
    bytes = _mm_mask_mov_epi8(bytes, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), WindowIndexes(index).bytes);
  }
  [[gnu::always_inline]] void set_where_nan(Floats a, int64_t index) {
    bytes = _mm_mask_mov_epi8(bytes, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), WindowIndexes(index).bytes);
  }
  [[gnu::always_inline]] void store_to(uint8_t* to) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes); }
};
// Returns sum + value in the lanes whose byte in `indexes` is `index`, and sum in the others.
[[gnu::always_inline]] inline Floats add_where(Floats sum, Floats value, const uint8_t* indexes, int64_t index) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(indexes));
  return _mm512_mask_add_ps(sum, _mm_cmpeq_epi8_mask(bytes, WindowIndexes(index).bytes), sum, value);
}
// Returns the lanes where either is NaN.
[[gnu::always_inline]] inline Bits unordered(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}
#else
struct WindowIndexes {
  __m256i lanes;

  [[gnu::always_inline]] explicit WindowIndexes(int64_t index)
      : lanes(_mm256_set1_epi32(static_cast<int32_t>(index))) {}
  [[gnu::always_inline]] void set_where(Floats mask, int64_t index) {
    lanes = _mm256_blendv_epi8(lanes, WindowIndexes(index).lanes, _mm256_castps_si256(mask));
  }
  [[gnu::always_inline]] void set_where_equal(Floats a, Floats b, int64_t index) {
    set_where(_mm256_cmp_ps(a, b, _CMP_EQ_OQ), index);
  }
  [[gnu::always_inline]] void set_where_nan(Floats a, int64_t index) {
    set_where(_mm256_cmp_ps(a, a, _CMP_UNORD_Q), index);
  }
  [[gnu::always_inline]] void store_to(uint8_t* to) const {
    const __m128i pairs = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(pairs, pairs));
  }
};
[[gnu::always_inline]] inline Floats add_where(Floats sum, Floats value, const uint8_t* indexes, int64_t index) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(indexes));
  const __m128i equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(index)));
  return sum + _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_cvtepi8_epi32(equal)));
}
[[gnu::always_inline]] inline Bits unordered(Floats a, Floats b) {
  return static_cast<Bits>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)));
}
#endif

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
