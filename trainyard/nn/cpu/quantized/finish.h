// Makes the output of int32 sums: QuantizedOutput, for a few neighbouring pixels of one channel block. Follows the
// rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/elementwise/activation.h"
#include "trainyard/nn/cpu/quantized/dot.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

[[gnu::always_inline]] inline Floats to_floats(Ints value) {
  return __builtin_convertvector(value, Floats);
}
[[gnu::always_inline]] inline Ints load_bytes(const uint8_t* from) {
#if defined(TRAINYARD_KERNELS_AVX512)
  return __builtin_bit_cast(Ints, _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  return __builtin_bit_cast(Ints, _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#endif
}

// Turns floats into bytes, four pixels of a block at a time.
class ToBytes {
 public:
  // Values are clamped to [`least`, `most`] first.
  explicit ToBytes(const QuantizedOutput& to, float least = -__builtin_inff(), float most = __builtin_inff())
      : inverse_scale_(fill(to.inverse_scale)),
        least_(fill(bound(least * to.inverse_scale, to))),
        most_(fill(bound(most * to.inverse_scale, to))),
        zero_(Ints{} + to.zero_point * 0x10001) {}

  // Returns round(value / scale) within the range of bytes, without the zero point; 0 for NaN where `nan` is set.
  template <bool nan>
  [[gnu::always_inline]] Ints whole(Floats value) const {
    Floats scaled = value * inverse_scale_;
    if constexpr (nan) scaled = scaled == scaled ? scaled : Floats{};
#if defined(TRAINYARD_KERNELS_AVX512)
    return __builtin_bit_cast(Ints, _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(scaled, least_), most_)));
#else
    return __builtin_bit_cast(Ints, _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(scaled, least_), most_)));
#endif
  }

  // Writes the first `pixels`, 1 to 4, of four.
  [[gnu::always_inline]] void put(uint8_t* to, const Ints* whole, int64_t pixels) const {
#if defined(TRAINYARD_KERNELS_AVX512)
    const auto bits = [&](int k) { return __builtin_bit_cast(__m512i, whole[k]); };
    const auto zero = __builtin_bit_cast(__m512i, zero_);
    const __m512i low = _mm512_add_epi16(_mm512_packs_epi32(bits(0), bits(1)), zero),
                  high = _mm512_add_epi16(_mm512_packs_epi32(bits(2), bits(3)), zero);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
    if (pixels == 4) return _mm512_storeu_si512(to, bytes);
    _mm512_mask_storeu_epi8(to, (uint64_t{1} << (16 * pixels)) - 1, bytes);
#else
    const auto bits = [&](int k) { return __builtin_bit_cast(__m256i, whole[k]); };
    const auto zero = __builtin_bit_cast(__m256i, zero_);
    const __m256i low = _mm256_add_epi16(_mm256_packs_epi32(bits(0), bits(1)), zero),
                  high = _mm256_add_epi16(_mm256_packs_epi32(bits(2), bits(3)), zero);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
    if (pixels == 4) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
    __builtin_memcpy(to, &bytes, static_cast<size_t>(pixels * kLanes));
#endif
  }

 private:
  // Returns a bound of quotients, as bytes without the zero point have it.
  static float bound(float quotient, const QuantizedOutput& to) {
    const auto least = static_cast<float>(-int32_t{to.zero_point}), most = static_cast<float>(255 - to.zero_point);
    return quotient < least ? least : quotient > most ? most : quotient;
  }

  Floats inverse_scale_, least_, most_;
  Ints zero_;
};

// What an output block's pixels have in common.
struct Finish {
  const QuantizedOutput& to;
  Floats factor, bias;
  Bits lanes;  // that hold channels
};

// Returns the residual's `from`-th element and those of the block behind it, as they are added to `value`.
template <typename Residual>
[[gnu::always_inline]] inline Floats with_residual(const QuantizedOutput& to, int64_t from, Floats value) {
  if constexpr (sizeof(Residual) == 1) {
    const Ints number = load_bytes(static_cast<const uint8_t*>(to.residual) + from) - int32_t{to.residual_zero};
    return multiply_add(to_floats(number), fill(to.residual_scale), value);
  } else {
    return value + load(static_cast<const Residual*>(to.residual) + from);
  }
}

struct NoResidual {};

template <typename Residual>
[[gnu::always_inline]] inline Floats value_of(const Finish& f, const int32_t* sums, int64_t at) {
  const Floats value = multiply_add(to_floats(load_ints(sums)), f.factor, f.bias);
  if constexpr (__is_same(Residual, NoResidual)) {
    return value;
  } else {
    return with_residual<Residual>(f.to, at, value);
  }
}

// Writes bytes where the activation is a range. Only float residuals can make a NaN.
template <typename Residual>
void finish_bytes(const Finish& f, const int32_t* sums, int64_t pixels, int64_t at) {
  const UnitActivation activation = f.to.activation;
  const float least = activation == UnitActivation::kNone ? -__builtin_inff() : 0,
              most = activation == UnitActivation::kRelu6 ? 6 : __builtin_inff();
  const ToBytes bytes(f.to, least, most);
  auto* const output = static_cast<uint8_t*>(f.to.output) + at;
  for (int64_t p = 0; p < pixels; p += 4) {
    Ints whole[4];
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t pixel = smaller(p + k, pixels - 1);
      whole[k] = bytes.whole<(sizeof(Residual) > 1)>(value_of<Residual>(f, sums + pixel * kLanes, at + pixel * kLanes));
    }
    bytes.put(output + p * kLanes, whole, smaller(4, pixels - p));
  }
}

// Replaces sums by floats, before the activation.
template <typename Residual>
void finish_values(const Finish& f, int32_t* sums, int64_t pixels, int64_t at) {
  for (int64_t p = 0; p < pixels; ++p) {
    const Floats value = value_of<Residual>(f, sums + p * kLanes, at + p * kLanes);
    store_ints(sums + p * kLanes, __builtin_bit_cast(Ints, value));
  }
}

// Calls `use` with an element of the residual's type, or NoResidual.
template <typename Use>
[[gnu::always_inline]] inline void with_residual_type(const QuantizedOutput& to, Use&& use) {
  if (to.residual == nullptr) return use(NoResidual());
  switch (to.residual_dtype) {
    case DataType::kFloat:
      return use(float());
    case DataType::kBfloat16:
      return use(Bfloat16());
    case DataType::kUint8:
      return use(uint8_t());
  }
}

template <typename T>
void store_values(const Finish& f, const int32_t* values, int64_t pixels, int64_t at) {
  auto* const output = static_cast<T*>(f.to.output) + at;
  for (int64_t p = 0; p < pixels; ++p) {
    store(output + p * kLanes, keep(__builtin_bit_cast(Floats, load_ints(values + p * kLanes)), f.lanes));
  }
}

// Makes the output of `sums`, `pixels` neighbours of a block that begin at the output's element `at`. The sums are
// lost.
inline void finish(const Finish& f, int32_t* sums, int64_t pixels, int64_t at) {
  const QuantizedOutput& to = f.to;
  const bool range = to.activation == UnitActivation::kNone || to.activation == UnitActivation::kRelu ||
                     to.activation == UnitActivation::kRelu6;
  if (to.dtype == DataType::kUint8 && range) {
    return with_residual_type(to, [&](auto kind) { finish_bytes<decltype(kind)>(f, sums, pixels, at); });
  }
  with_residual_type(to, [&](auto kind) { finish_values<decltype(kind)>(f, sums, pixels, at); });
  with_activation(to.activation, [&](auto kind) {
    for (int64_t p = 0; p < pixels; ++p) {
      const Floats value = activate<kind.kValue>(__builtin_bit_cast(Floats, load_ints(sums + p * kLanes)));
      store_ints(sums + p * kLanes, __builtin_bit_cast(Ints, value));
    }
  });
  if (to.dtype == DataType::kFloat) return store_values<float>(f, sums, pixels, at);
  if (to.dtype == DataType::kBfloat16) return store_values<Bfloat16>(f, sums, pixels, at);
  const ToBytes bytes(to);
  for (int64_t p = 0; p < pixels; p += 4) {
    Ints whole[4];
    for (int64_t k = 0; k < 4; ++k) {
      whole[k] = bytes.whole<true>(__builtin_bit_cast(Floats, load_ints(sums + smaller(p + k, pixels - 1) * kLanes)));
    }
    bytes.put(static_cast<uint8_t*>(to.output) + at + p * kLanes, whole, smaller(4, pixels - p));
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
