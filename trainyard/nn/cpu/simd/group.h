// Loads and stores one or two pixels of a channel block at a time. Two pixels of fp32 fill a register each. Two of
// bfloat16 become one register of their even channels and one of their odd ones: a shift and an "and" take these apart,
// where a register for each pixel would cost shuffles. Follows the rules of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

using UnsignedInts [[gnu::vector_size(kLanes * 4)]] = uint32_t;
constexpr uint32_t kUpper = 0xFFFF0000;

template <int pixels>
[[gnu::always_inline]] inline void load_group(const float* from, Floats* parts) {
  for (int k = 0; k < pixels; ++k) parts[k] = load(from + k * kLanes);
}
template <int pixels>
[[gnu::always_inline]] inline void load_group(const Bfloat16* from, Floats* parts) {
  if constexpr (pixels == 1) {
    parts[0] = load(from);
  } else {
    UnsignedInts both;
    __builtin_memcpy(&both, from, sizeof(both));
    parts[0] = __builtin_bit_cast(Floats, both << 16);
    parts[1] = __builtin_bit_cast(Floats, both & kUpper);
  }
}

template <int pixels>
[[gnu::always_inline]] inline void store_group(float* to, const Floats* parts, bool past_caches) {
  for (int k = 0; k < pixels; ++k) {
    past_caches ? stream(to + k * kLanes, parts[k]) : store(to + k * kLanes, parts[k]);
  }
}
// Writes two pixels past the caches. Each pixel is aligned to its size, the two together need not be.
[[gnu::always_inline]] inline void stream_halves(Bfloat16* to, UnsignedInts both) {
#if defined(TRAINYARD_KERNELS_AVX512)
  const auto bits = __builtin_bit_cast(__m512i, both);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(bits));
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kLanes), _mm512_extracti64x4_epi64(bits, 1));
#else
  const auto bits = __builtin_bit_cast(__m256i, both);
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bits));
  _mm_stream_si128(reinterpret_cast<__m128i*>(to + kLanes), _mm256_extracti128_si256(bits, 1));
#endif
}
// Two pixels are rounded without a test for NaN. A NaN survives that if its lower 16 bits are zero, as those from maps,
// from arithmetic and from PerLane are.
template <int pixels>
[[gnu::always_inline]] inline void store_group(Bfloat16* to, const Floats* parts, bool past_caches) {
  if constexpr (pixels == 1) {
    past_caches ? stream(to, parts[0]) : store(to, parts[0]);
  } else {
    UnsignedInts bits[2];
    for (int k = 0; k < 2; ++k) {
      bits[k] = __builtin_bit_cast(UnsignedInts, parts[k]);
      bits[k] += ((bits[k] >> 16) & 1) + 0x7FFF;
    }
    const UnsignedInts both = (bits[0] >> 16) | (bits[1] & kUpper);
    if (past_caches) {
      stream_halves(to, both);
    } else {
      __builtin_memcpy(to, &both, sizeof(both));
    }
  }
}

// Stores a bit for each element of a group of T, in the order of memory: set where ReLU lets a gradient through.
template <typename T, int pixels>
[[gnu::always_inline]] inline void store_passing(uint8_t* mask, int64_t element, const Floats* parts) {
  if constexpr (pixels == 1) {
    store_bits(mask, element, passing(parts[0]));
  } else if constexpr (sizeof(T) == 4) {
    for (int k = 0; k < pixels; ++k) store_bits(mask, element + k * kLanes, passing(parts[k]));
  } else {
    const uint32_t bits = _pdep_u32(passing(parts[0]), 0x55555555) | _pdep_u32(passing(parts[1]), 0xAAAAAAAA);
    __builtin_memcpy(mask + element / 8, &bits, 2 * sizeof(Bits));
  }
}
template <typename T, int pixels>
[[gnu::always_inline]] inline void keep_masked(const uint8_t* mask, int64_t element, Floats* parts) {
  if constexpr (pixels == 1 || sizeof(T) == 4) {
    for (int k = 0; k < pixels; ++k) parts[k] = keep(parts[k], load_bits(mask, element + k * kLanes));
  } else {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, mask + element / 8, 2 * sizeof(Bits));
    parts[0] = keep(parts[0], static_cast<Bits>(_pext_u32(bits, 0x55555555)));
    parts[1] = keep(parts[1], static_cast<Bits>(_pext_u32(bits, 0xAAAAAAAA)));
  }
}

// Holds a number for each lane, arranged for groups of T.
template <typename T>
class PerLane {
 public:
  explicit PerLane(const float* lanes) : one_(load(lanes)), two_{one_, one_} {
    if constexpr (sizeof(T) == 2) {
      float even[kLanes], odd[kLanes], plain[kLanes];
      store(plain, one_ == one_ ? one_ : fill(__builtin_nanf("")));  // NaN without lower bits: see store_group
      for (int64_t c = 0; c < kLanes; ++c) {
        even[c] = plain[c * 2 % kLanes];
        odd[c] = plain[c * 2 % kLanes + 1];
      }
      two_[0] = load(even);
      two_[1] = load(odd);
    }
  }
  template <int pixels>
  [[gnu::always_inline]] Floats part(int k) const {
    return pixels == 1 ? one_ : two_[k];
  }

 private:
  Floats one_, two_[2];
};

// Sums each lane over groups of T: pairs of pixels in two slots of two accumulators each, single pixels in one more.
template <typename T>
class LaneSums {
 public:
  template <int pixels, int slot>
  [[gnu::always_inline]] Floats& part(int k) {
    return pixels == 1 ? one_ : two_[slot][k];
  }
  void store_to(float* lanes) const {
    const Floats first = two_[0][0] + two_[1][0], second = two_[0][1] + two_[1][1];
    if constexpr (sizeof(T) == 4) {
      store(lanes, one_ + (first + second));
    } else {
      float even[kLanes], odd[kLanes], rest[kLanes];
      store(even, first);
      store(odd, second);
      store(rest, one_);
      for (int64_t c = 0; c < kLanes; ++c) {
        const float* const half = c % 2 == 0 ? even : odd;
        lanes[c] = rest[c] + (half[c / 2] + half[c / 2 + kLanes / 2]);
      }
    }
  }

 private:
  Floats one_ = {}, two_[2][2] = {};
};

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
