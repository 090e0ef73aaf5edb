// Moves one channel block of bytes between memory and registers, and finishes what kernels of bytes compute: residual,
// activation, quantization. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/quantized/finish.h"
#include "trainyard/nn/cpu/simd/quantized_bytes_arguments.h"
#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Loads and stores a block as bytes, which fill a part of a register.
#if defined(TRAINYARD_KERNELS_AVX512)
[[gnu::always_inline]] inline __m128i load_block(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
[[gnu::always_inline]] inline void store_block(uint8_t* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
#else
[[gnu::always_inline]] inline __m128i load_block(const uint8_t* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
[[gnu::always_inline]] inline void store_block(uint8_t* to, __m128i value) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), value);
}
#endif

#if defined(TRAINYARD_KERNELS_AVX512)
// Stores the lowest byte of each lane.
[[gnu::always_inline]] inline void store_bytes(uint8_t* to, Ints value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(__builtin_bit_cast(__m512i, value)));
}
// Rounds to nearest, ties to even; NaN becomes the smallest int32.
[[gnu::always_inline]] inline Ints to_ints(Floats value) {
  return __builtin_bit_cast(Ints, _mm512_cvtps_epi32(value));
}
[[gnu::always_inline]] inline Floats clamped(Floats value, Floats low, Floats high) {
  return _mm512_max_ps(low, _mm512_min_ps(high, value));  // in this order, both return a NaN value
}
// Returns whether a lane is infinite or NaN.
[[gnu::always_inline]] inline bool any_non_finite(Floats value) {
  return _mm512_fpclass_ps_mask(value, 0x99) != 0;
}
#else
[[gnu::always_inline]] inline void store_bytes(uint8_t* to, Ints value) {
  const __m256i lowest = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                          0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i halves = _mm256_shuffle_epi8(__builtin_bit_cast(__m256i, value), lowest);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                   _mm_unpacklo_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}
[[gnu::always_inline]] inline Ints to_ints(Floats value) {
  return __builtin_bit_cast(Ints, _mm256_cvtps_epi32(value));
}
[[gnu::always_inline]] inline Floats clamped(Floats value, Floats low, Floats high) {
  return _mm256_max_ps(low, _mm256_min_ps(high, value));
}
[[gnu::always_inline]] inline bool any_non_finite(Floats value) {
  const __m256i exponent = _mm256_set1_epi32(0x7F800000);
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(value), exponent);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi32(bits, exponent)) != 0;
}
#endif

// Returns the bytes at `from` minus `zero_point`, as floats.
[[gnu::always_inline]] inline Floats load_centered(const uint8_t* from, Ints zero_point) {
  return to_floats(load_bytes(from) - zero_point);
}
[[gnu::always_inline]] inline Ints fill_ints(int32_t value) {
  return Ints{} + value;
}

// Quantizes registers. ReLU and ReLU6 are bounds of what is rounded, since rounding keeps the order of numbers.
class Quantizer {
 public:
  Quantizer(float inverse_scale, uint8_t zero_point, UnitActivation bounds = UnitActivation::kNone)
      : inverse_scale_(fill(inverse_scale)), zero_point_(fill_ints(zero_point)) {
    const auto lowest = static_cast<float>(-zero_point), highest = static_cast<float>(255 - zero_point);
    const float six = 6.0F * inverse_scale;
    low_ = fill(bounds == UnitActivation::kNone ? lowest : 0.0F);
    high_ = fill(bounds == UnitActivation::kRelu6 && six < highest ? six : highest);
  }
  static bool is_bound(UnitActivation activation) {
    return activation == UnitActivation::kNone || activation == UnitActivation::kRelu ||
           activation == UnitActivation::kRelu6;
  }
  // Returns the quantized value in the lowest byte of each lane. The other bytes are zero, but for NaN.
  [[gnu::always_inline]] Ints operator()(Floats value) const {
    return to_ints(clamped(value * inverse_scale_, low_, high_)) + zero_point_;
  }

 private:
  Floats inverse_scale_, low_, high_;
  Ints zero_point_;
};

// Quantizes, and remembers whether a value was infinite or NaN.
class CheckedQuantizer {
 public:
  CheckedQuantizer(float inverse_scale, uint8_t zero_point) : quantize_(inverse_scale, zero_point) {}
  [[gnu::always_inline]] Ints operator()(Floats value) {
    found_ |= any_non_finite(value);
    return quantize_(value);
  }
  // Sets the flag of sample `n`. Several threads may set it.
  void report(uint8_t* flags, int64_t n) const {
    if (found_ && flags != nullptr) __atomic_store_n(flags + n, uint8_t{1}, __ATOMIC_RELAXED);
  }

 private:
  Quantizer quantize_;
  bool found_ = false;
};

[[gnu::always_inline]] inline Floats activate_by(UnitActivation activation, Floats value) {
  with_activation(
      activation, [&](auto kind) __attribute__((always_inline)) { value = activate<kind.kValue>(value); });
  return value;
}

// Writes bytes without a residual, activated by bounds: what nearly all layers do.
class BoundedBytes {
 public:
  explicit BoundedBytes(const QuantizedOutput& to)
      : output_(static_cast<uint8_t*>(to.output)),
        quantize_(to.inverse_scale, to.zero_point, to.activation),
        four_(to, least(to), most(to)) {}
  // Writes one block of one pixel, which begins at element `at`.
  [[gnu::always_inline]] void put(int64_t at, Floats value, Bits /*lanes*/) const {
    store_bytes(output_ + at, quantize_(value));
  }
  // Returns a block's factors or biases, with which put_products() takes what sums give: in units of the scale.
  [[gnu::always_inline]] static Floats factor(const QuantizedOutput& to, const float* from) {
    return load(from) * fill(to.inverse_scale);
  }
  // Writes the first `pixels`, 1 to 4, of four neighbouring pixels. A NaN becomes any byte.
  [[gnu::always_inline]] void put_products(int64_t at, const Floats (&values)[4], int64_t pixels,
                                           Bits /*lanes*/) const {
    Ints whole[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) whole[k] = four_.whole_of_quotient(values[k]);
    four_.put(output_ + at, whole, pixels);
  }

 private:
  static float least(const QuantizedOutput& to) {
    return to.activation == UnitActivation::kNone ? -__builtin_inff() : 0;
  }
  static float most(const QuantizedOutput& to) {
    return to.activation == UnitActivation::kRelu6 ? 6 : __builtin_inff();
  }

  uint8_t* output_;
  Quantizer quantize_;
  ToBytes four_;
};

// Writes anything, and decides for each block what to do.
class AnyOutput {
 public:
  explicit AnyOutput(const QuantizedOutput& to)
      : to_(to), quantize_(to.inverse_scale, to.zero_point), residual_zero_(fill_ints(to.residual_zero)) {}
  // `lanes` are those with a channel: the others of floats become zero.
  [[gnu::noinline]] void put(int64_t at, Floats value, Bits lanes) const {
    if (to_.residual != nullptr) value = with_residual(at, value);
    value = activate_by(to_.activation, value);
    if (to_.dtype == DataType::kUint8) {
      store_bytes(static_cast<uint8_t*>(to_.output) + at, quantize_(value));
    } else if (to_.dtype == DataType::kFloat) {
      store(static_cast<float*>(to_.output) + at, keep(value, lanes));
    } else {
      store(static_cast<Bfloat16*>(to_.output) + at, keep(value, lanes));
    }
  }
  [[gnu::always_inline]] static Floats factor(const QuantizedOutput& /*to*/, const float* from) { return load(from); }
  void put_products(int64_t at, const Floats (&values)[4], int64_t pixels, Bits lanes) const {
    for (int64_t k = 0; k < pixels; ++k) put(at + k * kLanes, values[k], lanes);
  }

 private:
  Floats with_residual(int64_t at, Floats value) const {
    if (to_.residual_dtype == DataType::kFloat) return value + load(static_cast<const float*>(to_.residual) + at);
    if (to_.residual_dtype == DataType::kBfloat16) return value + load(static_cast<const Bfloat16*>(to_.residual) + at);
    const uint8_t* const bytes = static_cast<const uint8_t*>(to_.residual) + at;
    return multiply_add(load_centered(bytes, residual_zero_), fill(to_.residual_scale), value);
  }

  const QuantizedOutput& to_;
  Quantizer quantize_;
  Ints residual_zero_;
};

// Calls use(output) with the writer for `to`.
template <typename Use>
inline void with_output(const QuantizedOutput& to, const Use& use) {
  if (to.dtype == DataType::kUint8 && to.residual == nullptr && Quantizer::is_bound(to.activation)) {
    use(BoundedBytes(to));
  } else {
    use(AnyOutput(to));
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
