// Makes the output of int32 sums: QuantizedOutput, for a few neighbouring pixels of one channel block. Follows the
// rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/elementwise/rounded_gelu.h"
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

// Rounds half to even.
[[gnu::always_inline]] inline Ints round_to_ints(Floats value) {
#if defined(TRAINYARD_KERNELS_AVX512)
  return __builtin_bit_cast(Ints, _mm512_cvtps_epi32(value));
#else
  return __builtin_bit_cast(Ints, _mm256_cvtps_epi32(value));
#endif
}

// Adds `zero`, two 16 bits a lane, to the numbers of four pixels of a block, and returns them as bytes, pixel by pixel;
// 0 or 255 for numbers outside of their range.
[[gnu::always_inline]] inline Ints packed_bytes(const Ints* whole, Ints zero) {
#if defined(TRAINYARD_KERNELS_AVX512)
  const auto bits = [&](int k) { return __builtin_bit_cast(__m512i, whole[k]); };
  const auto added = __builtin_bit_cast(__m512i, zero);
  const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(bits(0), bits(1)), added),
                high = _mm512_adds_epi16(_mm512_packs_epi32(bits(2), bits(3)), added);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return __builtin_bit_cast(Ints, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
#else
  const auto bits = [&](int k) { return __builtin_bit_cast(__m256i, whole[k]); };
  const auto added = __builtin_bit_cast(__m256i, zero);
  const __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(bits(0), bits(1)), added),
                high = _mm256_adds_epi16(_mm256_packs_epi32(bits(2), bits(3)), added);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return __builtin_bit_cast(Ints, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
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
    const Floats quotient = value * inverse_scale_;
    return whole_of_quotient(nan ? quotient == quotient ? quotient : Floats{} : quotient);
  }
  // The same of what is in units of the scale already.
  [[gnu::always_inline]] Ints whole_of_quotient(Floats quotient) const {
    const Floats at_least = quotient < least_ ? least_ : quotient;
    return round_to_ints(at_least < most_ ? at_least : most_);
  }

  // Writes the first `pixels`, 1 to 4, of four.
  [[gnu::always_inline]] void put(uint8_t* to, const Ints* whole, int64_t pixels) const {
    const Ints bytes = packed_bytes(whole, zero_);
    if (pixels == 4) return store_ints(to, bytes);
    __builtin_memcpy(to, &bytes, static_cast<size_t>(pixels * kLanes));
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

// The factors and biases of `count` outputs in units of the output's scale.
template <int64_t count>
struct FactorsOfQuotients {
  alignas(64) float factors[count], bias[count];

  void set(const QuantizedOutput& to, const float* real_factors, const float* real_bias) {
    const Floats inverse_scale = fill(to.inverse_scale);
    for (int64_t i = 0; i < count; i += kLanes) {
      store(factors + i, load(real_factors + i) * inverse_scale);
      store(bias + i, load(real_bias + i) * inverse_scale);
    }
  }
};

// Writes the bytes of a tile's sums from the registers that hold them: outputs of bytes, with a range as activation, no
// residual or one of bytes, and sums that are far from the ends of int32 (fits()). All values are then numbers, and
// what lies outside of the range of bytes is cut off where 16 and 8 bits saturate.
template <bool residual>
struct WriteBytes {
  static constexpr int64_t kAhead = 4;  // tiles, by which a residual is fetched ahead

  const float *factors, *bias;  // of the panel's first block, as FactorsOfQuotients has them
  uint8_t* output;              // of the tile's first pixel in this block
  const uint8_t* added;         // the same of the residual
  int64_t block_step;           // from one block to the next, in bytes
  float residual_scale;         // in units of the output's
  int32_t residual_zero;
  int32_t zero, least, most;  // in each of two 16 bits, and in each of four bytes
  bool past_caches;

  WriteBytes(const QuantizedOutput& to, const float* panel_factors, const float* panel_bias, int64_t step, bool streams)
      : factors(panel_factors),
        bias(panel_bias),
        output(static_cast<uint8_t*>(to.output)),
        added(static_cast<const uint8_t*>(to.residual)),
        block_step(step),
        residual_scale(to.residual_scale * to.inverse_scale),
        residual_zero(to.residual_zero),
        zero(to.zero_point * 0x10001),
        least(to.activation == UnitActivation::kNone ? 0 : four(to.zero_point)),
        most(to.activation == UnitActivation::kRelu6 ? four(byte_of(6 * to.inverse_scale, to.zero_point)) : -1),
        past_caches(streams) {}

  // Returns whether this writes what `to` says for the blocks whose factors and biases these are (not yet in units of
  // the output's scale), by sums of `terms`.
  static bool fits(const QuantizedOutput& to, const float* factors, const float* bias, int64_t count, int64_t terms) {
    if (to.dtype != DataType::kUint8 || (to.residual != nullptr) != residual) return false;
    if (residual && to.residual_dtype != DataType::kUint8) return false;
    if (to.activation != UnitActivation::kNone && to.activation != UnitActivation::kRelu &&
        to.activation != UnitActivation::kRelu6) {
      return false;
    }
    const float most_of_sum = 255.0F * 127 * static_cast<float>(terms),
                of_residual = residual ? 255 * __builtin_fabsf(to.residual_scale) : 0;
    bool all = true;
    for (int64_t i = 0; i < count; ++i) {
      const float most_of_value = most_of_sum * __builtin_fabsf(factors[i]) + __builtin_fabsf(bias[i]) + of_residual;
      all &= most_of_value * to.inverse_scale < 0x1p30F;  // false for NaN
    }
    return all;
  }

  // Moves to the tile `pixels` further.
  void advance(int64_t pixels) {
    output += pixels * kLanes;
    if (residual) added += pixels * kLanes;
  }
  // Returns four bytes a lane within the range.
  [[gnu::always_inline]] Ints limited(Ints bytes) const {
    using Bytes [[gnu::vector_size(kLanes * 4)]] = uint8_t;
    const auto at_least = __builtin_bit_cast(Bytes, Ints{} + least), at_most = __builtin_bit_cast(Bytes, Ints{} + most);
    auto value = __builtin_bit_cast(Bytes, bytes);
    value = value > at_least ? value : at_least;
    return __builtin_bit_cast(Ints, value < at_most ? value : at_most);
  }

  template <int pixels, int blocks>
  [[gnu::always_inline]] void operator()(const Ints (&sums)[pixels][blocks]) const {
    // The last two pixels of both blocks make four.
    constexpr bool kTwoAndTwo = blocks == 2 && pixels % 4 == 2;
    constexpr int kFours = kTwoAndTwo ? pixels - 2 : pixels;
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) {
      if constexpr (residual) {
#pragma GCC unroll 4
        for (int p = 0; p < pixels; p += 64 / kLanes) {
          _mm_prefetch(added + v * block_step + (kAhead * pixels + p) * kLanes, _MM_HINT_T0);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < kFours; p += 4) {
        Ints numbers[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          numbers[k] = p + k < pixels ? whole(sums[p + k][v], p + k, v) : numbers[k / 2];  // the last are not stored
        }
        const auto bytes = limited(packed_bytes(numbers, Ints{} + zero));
        const int count = pixels - p < 4 ? pixels - p : 4;
        if (kLanes == 16 && count == 4 && past_caches) {
          stream(reinterpret_cast<float*>(output + v * block_step + p * kLanes), __builtin_bit_cast(Floats, bytes));
          continue;
        }
        __builtin_memcpy(output + v * block_step + p * kLanes, &bytes, static_cast<size_t>(count * kLanes));
      }
    }
    if constexpr (kTwoAndTwo) {
      Ints numbers[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) numbers[k] = whole(sums[kFours + k % 2][k / 2], kFours + k % 2, k / 2);
      const auto bytes = limited(packed_bytes(numbers, Ints{} + zero));
      const auto* const both = reinterpret_cast<const uint8_t*>(&bytes);
      __builtin_memcpy(output + kFours * kLanes, both, 2 * kLanes);
      __builtin_memcpy(output + block_step + kFours * kLanes, both + 2 * kLanes, 2 * kLanes);
    }
  }

 private:
  // Returns what a sum gives, without the zero point.
  [[gnu::always_inline]] Ints whole(Ints sum, int pixel, int v) const {
    Floats value = multiply_add(to_floats(sum), load(factors + v * kLanes), load(bias + v * kLanes));
    if constexpr (residual) {
      const Ints number = load_bytes(added + v * block_step + pixel * kLanes) - residual_zero;
      value = multiply_add(to_floats(number), fill(residual_scale), value);
    }
    return round_to_ints(value);
  }
  static int32_t four(uint8_t byte) {
    return static_cast<int32_t>(byte * 0x01010101U);
  }
  static uint8_t byte_of(float quotient, int32_t zero_point) {
    return static_cast<uint8_t>(quotient < 255 ? smaller(255, _mm_cvtss_si32(_mm_set_ss(quotient)) + zero_point) : 255);
  }
};

// What an output block's pixels have in common.
struct Finish {
  const QuantizedOutput& to;
  Floats factor, bias;
  Bits lanes;  // that hold channels
};

// Returns a residual of bytes from its `from`-th element on, without its scale.
[[gnu::always_inline]] inline Floats residual_number(const QuantizedOutput& to, int64_t from) {
  return to_floats(load_bytes(static_cast<const uint8_t*>(to.residual) + from) - int32_t{to.residual_zero});
}

// Returns the residual's `from`-th element and those of the block behind it, as they are added to `value`.
template <typename Residual>
[[gnu::always_inline]] inline Floats with_residual(const QuantizedOutput& to, int64_t from, Floats value) {
  if constexpr (sizeof(Residual) == 1) {
    return multiply_add(residual_number(to, from), fill(to.residual_scale), value);
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

// Writes bytes where the activation is a range, with the formula of WriteBytes but for residuals of floats, which alone
// can make a NaN.
template <typename Residual>
void finish_bytes(const Finish& f, const int32_t* sums, int64_t pixels, int64_t at) {
  const UnitActivation activation = f.to.activation;
  const float least = activation == UnitActivation::kNone ? -__builtin_inff() : 0,
              most = activation == UnitActivation::kRelu6 ? 6 : __builtin_inff();
  const ToBytes bytes(f.to, least, most);
  auto* const output = static_cast<uint8_t*>(f.to.output) + at;
  const Floats inverse_scale = fill(f.to.inverse_scale);
  const Finish in_quotients = {
      .to = f.to, .factor = f.factor * inverse_scale, .bias = f.bias * inverse_scale, .lanes = f.lanes};
  const Floats residual_scale = fill(f.to.residual_scale * f.to.inverse_scale);
  const auto whole_of = [&](int64_t pixel) __attribute__((always_inline)) {
    const int32_t* const from = sums + pixel * kLanes;
    if constexpr (__is_same(Residual, NoResidual)) {
      return bytes.whole_of_quotient(value_of<NoResidual>(in_quotients, from, 0));
    } else if constexpr (sizeof(Residual) == 1) {
      const Floats number = residual_number(f.to, at + pixel * kLanes);
      return bytes.whole_of_quotient(multiply_add(number, residual_scale, value_of<NoResidual>(in_quotients, from, 0)));
    } else {
      return bytes.whole<true>(value_of<Residual>(f, from, at + pixel * kLanes));
    }
  };
  for (int64_t p = 0; p < pixels; p += 4) {
    Ints whole[4];
    for (int64_t k = 0; k < 4; ++k) {
      whole[k] = whole_of(smaller(p + k, pixels - 1));
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
  const auto replace = [&](const auto& function) __attribute__((always_inline)) {
    for (int64_t p = 0; p < pixels; ++p) {
      const Floats value = function(__builtin_bit_cast(Floats, load_ints(sums + p * kLanes)));
      store_ints(sums + p * kLanes, __builtin_bit_cast(Ints, value));
    }
  };
  if (to.dtype == DataType::kUint8 && to.activation == UnitActivation::kGelu) {
    replace(RoundedGelu());
  } else {
    with_activation(to.activation, [&](auto kind) { replace([&](Floats x) { return activate<kind.kValue>(x); }); });
  }
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
