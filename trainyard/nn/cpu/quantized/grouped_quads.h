// The quads of grouped convolutions of bytes (QuantizedGroupedShape), as registers. Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/quantized/byte_lanes.h"
#include "trainyard/nn/cpu/quantized/dot.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kQuadLanes = kLanes * 4;  // bytes of a register

template <typename Dot>
constexpr int64_t kParts = 4 / Dot::kInWord;

// Writes a quad of each lane: as it is, or first the even and then the odd bytes as 16 bits.
template <typename Dot>
[[gnu::always_inline]] inline void store_quads(uint8_t* to, Ints quads) {
  if constexpr (kParts<Dot> == 1) {
    store_ints(to, quads);
  } else {
    store_ints(to, quads & 0x00FF00FF);
    store_ints(to + kQuadLanes, (quads >> 8) & 0x00FF00FF);
  }
}

#if defined(TRAINYARD_KERNELS_AVX512)
// Returns four pixels, which lie one behind the other, with the bytes of each lane side by side.
[[gnu::always_inline]] inline Ints pixel_quads_of(__m512i four) {
  const __m512i words = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return __builtin_bit_cast(Ints, _mm512_shuffle_epi8(_mm512_permutexvar_epi32(words, four), bytes));
}
[[gnu::always_inline]] inline Ints load_pixel_quads(const uint8_t* pixels) {
  return pixel_quads_of(_mm512_loadu_si512(pixels));
}
// Loads the pixels [first, last) of the four only; the others become `padding`, and their memory is not touched.
[[gnu::always_inline]] inline Ints load_some_pixel_quads(const uint8_t* pixels, int64_t first, int64_t last,
                                                         Ints padding) {
  const auto halves = static_cast<__mmask8>((1U << 2 * last) - (1U << 2 * first));
  return pixel_quads_of(_mm512_mask_loadu_epi64(__builtin_bit_cast(__m512i, padding), halves, pixels));
}
// Returns word[i] of the pixel at `pixel` in lane i.
[[gnu::always_inline]] inline Ints load_channel_quads(const uint8_t* pixel, Ints word) {
  const __m128i channels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixel));
  return __builtin_bit_cast(
      Ints, _mm512_permutexvar_epi32(__builtin_bit_cast(__m512i, word), _mm512_castsi128_si512(channels)));
}
#else
[[gnu::always_inline]] inline Ints pixel_quads_of(__m256i four) {
  const __m256i words = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256i bytes =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return __builtin_bit_cast(Ints, _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(four, words), bytes));
}
[[gnu::always_inline]] inline Ints load_pixel_quads(const uint8_t* pixels) {
  return pixel_quads_of(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(pixels)));
}
[[gnu::always_inline]] inline Ints load_some_pixel_quads(const uint8_t* pixels, int64_t first, int64_t last,
                                                         Ints padding) {
  const __m256i place = _mm256_setr_epi64x(0, 1, 2, 3);
  const __m256i some = _mm256_andnot_si256(_mm256_cmpgt_epi64(_mm256_set1_epi64x(first), place),
                                           _mm256_cmpgt_epi64(_mm256_set1_epi64x(last), place));
  const __m256i four = _mm256_maskload_epi64(reinterpret_cast<const long long*>(pixels), some);
  return pixel_quads_of(_mm256_blendv_epi8(__builtin_bit_cast(__m256i, padding), four, some));
}
[[gnu::always_inline]] inline Ints load_channel_quads(const uint8_t* pixel, Ints word) {
  const __m128i channels = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixel));
  return __builtin_bit_cast(
      Ints, _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(channels), __builtin_bit_cast(__m256i, word)));
}
#endif

// Returns the first channel, in its block, of quad `quad` that output lane `lane` reads.
[[gnu::always_inline]] inline int64_t first_of_quad(const QuantizedGroupedShape& a, int64_t lane, int64_t quad) {
  if (!a.fills_lanes()) return quad * 4;
  return lane / larger(a.group_in(), 4) * larger(a.group_in(), 4) + quad * 4;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
