// One channel block in one register: Floats, its loads from and stores to maps of either dtype, and Bits, with one bit
// a lane. For loops over lanes that the compiler does not turn into the instructions wanted. Follows the rules of
// compiled_for.h.
//
// +, -, *, / and comparisons of Floats are the compiler's. It compiles in ISO mode, which never contracts a product and
// a sum: where they shall be fused, the code says multiply_add. So forward and backward compute the same bits.
#pragma once

#include "trainyard/nn/cpu/simd/compiled_for.h"
#include "trainyard/nn/cpu/simd/intrinsics.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

#if defined(TRAINYARD_KERNELS_AVX512)
using Floats = __m512;
using Bits = uint16_t;  // lane i is bit i
#define TRAINYARD_VECTOR(operation) _mm512_##operation
#else
using Floats = __m256;
using Bits = uint8_t;
#define TRAINYARD_VECTOR(operation) _mm256_##operation
#endif
using Ints [[gnu::vector_size(kLanes * 4)]] = int32_t;
using Doubles [[gnu::vector_size(kLanes * 8)]] = double;

[[gnu::always_inline]] inline Floats fill(float value) {
  return TRAINYARD_VECTOR(set1_ps)(value);
}
[[gnu::always_inline]] inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return TRAINYARD_VECTOR(fmadd_ps)(a, b, c);
}
// Returns the larger, or in at_most() the smaller, of `bound` and `value`; NaN where `value` is NaN.
[[gnu::always_inline]] inline Floats at_least(float bound, Floats value) {
  return TRAINYARD_VECTOR(max_ps)(fill(bound), value);
}
[[gnu::always_inline]] inline Floats at_most(float bound, Floats value) {
  return TRAINYARD_VECTOR(min_ps)(fill(bound), value);
}
[[gnu::always_inline]] inline Floats absolute(Floats value) {
  return __builtin_bit_cast(Floats, __builtin_bit_cast(Ints, value) & 0x7FFFFFFF);
}
// Returns the bits of both: joins two values of which one is zero in each lane.
[[gnu::always_inline]] inline Floats merged(Floats a, Floats b) {
  return __builtin_bit_cast(Floats, __builtin_bit_cast(Ints, a) | __builtin_bit_cast(Ints, b));
}
[[gnu::always_inline]] inline Floats copy_sign(Floats magnitude, Floats sign) {
  return __builtin_bit_cast(Floats, __builtin_bit_cast(Ints, absolute(magnitude)) |
                                        (__builtin_bit_cast(Ints, sign) & static_cast<int32_t>(0x80000000U)));
}

// Returns the larger of `a` and `b`; `b` where either is NaN.
[[gnu::always_inline]] inline Floats maximum(Floats a, Floats b) {
  return TRAINYARD_VECTOR(max_ps)(a, b);
}
// Returns `value`, or 0 where it is infinite or NaN.
[[gnu::always_inline]] inline Floats finite_or_zero(Floats value) {
  return value - value == Floats{} ? value : Floats{};
}
[[gnu::always_inline]] inline Floats square_root(Floats value) {
  return TRAINYARD_VECTOR(sqrt_ps)(value);
}
// Returns value * 2^power, for `value` from 1/2 to 2 and a whole `power` in [-200, 200]. The result is infinity above
// the range of floats, and 0 for a power below -126: a subnormal number would slow down all that follows.
[[gnu::always_inline]] inline Floats times_power_of_two(Floats value, Floats power) {
#if defined(TRAINYARD_KERNELS_AVX512)
  const __mmask16 normal = _mm512_cmp_ps_mask(power, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);  // or NaN
  return _mm512_maskz_scalef_ps(normal, value, power);
#else
  // 2^power may be outside the range of floats, its two factors are not.
  const Ints whole = __builtin_convertvector(power, Ints), half = whole >> 1;
  const auto factor = [](Ints exponent) { return __builtin_bit_cast(Floats, (exponent + 127) << 23); };
  const Floats product = value * factor(half) * factor(whole - half);
  return power < fill(-126.0F) ? Floats{} : product;
#endif
}

[[gnu::always_inline]] inline Floats load(const float* from) {
  return TRAINYARD_VECTOR(loadu_ps)(from);
}
[[gnu::always_inline]] inline void store(float* to, Floats value) {
  TRAINYARD_VECTOR(storeu_ps)(to, value);
}
// Writes past the caches; `to` is aligned to a vector. Other threads see the value after a fence.
[[gnu::always_inline]] inline void stream(float* to, Floats value) {
  TRAINYARD_VECTOR(stream_ps)(to, value);
}

#if defined(TRAINYARD_KERNELS_AVX512)
[[gnu::always_inline]] inline Floats load(const Bfloat16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Rounds as narrow<Bfloat16>. (The instruction vcvtneps2bf16 would not do: it takes subnormal numbers for zero.)
[[gnu::always_inline]] inline __m256i rounded(Floats value) {
  const __m512i bits = _mm512_castps_si512(value), upper = _mm512_srli_epi32(bits, 16);
  const __m512i half = _mm512_add_epi32(_mm512_and_si512(upper, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}
[[gnu::always_inline]] inline void store(Bfloat16* to, Floats value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded(value));
}
[[gnu::always_inline]] inline void stream(Bfloat16* to, Floats value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), rounded(value));
}
// Returns the lanes where ReLU lets a gradient through, as in PyTorch: those above 0 and NaN.
[[gnu::always_inline]] inline Bits passing(Floats value) {
  return _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NLE_UQ);
}
[[gnu::always_inline]] inline Floats keep(Floats value, Bits lanes) {
  return _mm512_maskz_mov_ps(lanes, value);
}
// Loads the lanes in `lanes` only. The others become zero, and their memory is not touched.
[[gnu::always_inline]] inline Floats load_lanes(const float* from, Bits lanes) {
  return _mm512_maskz_loadu_ps(lanes, from);
}
[[gnu::always_inline]] inline void store_lanes(float* to, Floats value, Bits lanes) {
  _mm512_mask_storeu_ps(to, lanes, value);
}
// Returns, in lane i, lane index[i] of `low` and `high` one behind the other; index[i] is below 2 * kLanes.
[[gnu::always_inline]] inline Floats pick(Floats low, Floats high, Ints index) {
  return _mm512_permutex2var_ps(low, __builtin_bit_cast(__m512i, index), high);
}
[[gnu::always_inline]] inline Floats pick(Floats from, Ints index) {
  return _mm512_permutexvar_ps(__builtin_bit_cast(__m512i, index), from);
}
#else
[[gnu::always_inline]] inline Floats load(const Bfloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
[[gnu::always_inline]] inline __m128i rounded(Floats value) {
  const __m256i bits = _mm256_castps_si256(value), upper = _mm256_srli_epi32(bits, 16);
  const __m256i half = _mm256_add_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i result = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}
[[gnu::always_inline]] inline void store(Bfloat16* to, Floats value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rounded(value));
}
[[gnu::always_inline]] inline void stream(Bfloat16* to, Floats value) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), rounded(value));
}
[[gnu::always_inline]] inline Bits passing(Floats value) {
  return static_cast<Bits>(_mm256_movemask_ps(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_NLE_UQ)));
}
[[gnu::always_inline]] inline __m256i all_bits(Bits lanes) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(lanes), lane), lane);
}
[[gnu::always_inline]] inline Floats keep(Floats value, Bits lanes) {
  return _mm256_and_ps(value, _mm256_castsi256_ps(all_bits(lanes)));
}
[[gnu::always_inline]] inline Floats load_lanes(const float* from, Bits lanes) {
  return _mm256_maskload_ps(from, all_bits(lanes));
}
[[gnu::always_inline]] inline void store_lanes(float* to, Floats value, Bits lanes) {
  _mm256_maskstore_ps(to, all_bits(lanes), value);
}
[[gnu::always_inline]] inline Floats pick(Floats low, Floats high, Ints index) {
  const __m256i from = __builtin_bit_cast(__m256i, index);
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, from), _mm256_permutevar8x32_ps(high, from),
                          _mm256_castsi256_ps(_mm256_slli_epi32(from, 28)));
}
[[gnu::always_inline]] inline Floats pick(Floats from, Ints index) {
  return _mm256_permutevar8x32_ps(from, __builtin_bit_cast(__m256i, index));
}
#endif
#undef TRAINYARD_VECTOR

// Loads the bits of the pixel whose first element is `element`, from a mask with one bit an element.
[[gnu::always_inline]] inline Bits load_bits(const uint8_t* mask, int64_t element) {
  Bits bits;
  __builtin_memcpy(&bits, mask + element / 8, sizeof(bits));
  return bits;
}
[[gnu::always_inline]] inline void store_bits(uint8_t* mask, int64_t element, Bits bits) {
  __builtin_memcpy(mask + element / 8, &bits, sizeof(bits));
}

// Returns the first `count` elements at `from`, and zero in the lanes behind them.
[[gnu::always_inline]] inline Floats load_first(const float* from, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t c = 0; c < smaller(count, kLanes); ++c) lanes[c] = from[c];
  return load(lanes);
}

// Returns the indices by, by + 1, ..., with which pick() moves lanes down; 0 <= by <= kLanes.
[[gnu::always_inline]] inline Ints lanes_from(int64_t by) {
#if defined(TRAINYARD_KERNELS_AVX512)
  return Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + static_cast<int32_t>(by);
#else
  return Ints{0, 1, 2, 3, 4, 5, 6, 7} + static_cast<int32_t>(by);
#endif
}

// Returns the lanes of block `b` that hold a channel.
[[gnu::always_inline]] inline Bits channel_lanes(const MapShape& shape, int64_t b) {
  return static_cast<Bits>((1U << smaller(shape.channels - b * kLanes, kLanes)) - 1);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA

// Defines the kernel `name`, which calls `function<T>` with the element type that its arguments name.
// NOLINTBEGIN(bugprone-macro-parentheses): a template's name in parentheses takes no arguments.
#define TRAINYARD_KERNEL_OF_TYPES(name, Arguments, function)                  \
  void name(const Arguments& a) {                                             \
    a.dtype == DataType::kFloat ? function<float>(a) : function<Bfloat16>(a); \
  }
// NOLINTEND(bugprone-macro-parentheses)
