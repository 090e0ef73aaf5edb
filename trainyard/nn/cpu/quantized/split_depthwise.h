// Depthwise 3x3 windows of bytes by vpmaddubsw (QuantizedGroupedShape::splits()), exact for any bytes. Follows the
// rules of nn/cpu/simd/compiled_for.h.
//
// A weight is 16 * high + low, both from -8 to 8, so that nine products of a byte with either are at most
// 9 * 255 * 8 = 18360: their sums stay in 16 bits, for 16 outputs a register, and one vpmaddwd makes 32 bits of both.
// Weights are in pairs: those of the window's first two rows, which lie one above the other; the first two of the third
// row; zero and the last.
#pragma once

#include <omp.h>

#include "trainyard/nn/cpu/quantized/grouped_quads.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kSplitPairs = 5;

#if !defined(TRAINYARD_KERNELS_AVX512)
constexpr int64_t kSplitTile = 4;  // outputs

[[gnu::always_inline]] inline __m256i load_256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Computes four neighbouring outputs of a block from three rows' bytes on. The sums are those of pixels 0 and 2, then 1
// and 3, with a stride of 1; of pixels 0 and 1, then 2 and 3, with a stride of 2: of channels 0 to 3, and 4 to 7.
template <int stride>
[[gnu::always_inline]] inline void split_tile(const uint8_t* const (&rows)[3], const int8_t* weights,
                                              Ints (&sums)[2][2]) {
  const auto even = [&](int64_t row, int64_t x, int64_t other, int64_t other_x) __attribute__((always_inline)) {
    return _mm256_unpacklo_epi8(load_256(rows[row] + x * kLanes), load_256(rows[other] + other_x * kLanes));
  };
  const auto odd = [&](int64_t row, int64_t x, int64_t other, int64_t other_x) __attribute__((always_inline)) {
    return _mm256_unpackhi_epi8(load_256(rows[row] + x * kLanes), load_256(rows[other] + other_x * kLanes));
  };
  constexpr int64_t kNext = stride == 1 ? 1 : 4;  // columns
  __m256i pairs[2][kSplitPairs];
  if constexpr (stride == 1) {
    const __m256i second = odd(0, 0, 1, 0), third = even(0, 2, 1, 2), middle = odd(2, 0, 2, 1);
    const __m256i first_pairs[] = {even(0, 0, 1, 0), second, third, even(2, 0, 2, 1), middle};
    const __m256i second_pairs[] = {second, third, odd(0, 2, 1, 2), middle, even(2, 2, 2, 3)};
#pragma GCC unroll 5
    for (int64_t i = 0; i < kSplitPairs; ++i) {
      pairs[0][i] = first_pairs[i];
      pairs[1][i] = second_pairs[i];
    }
  } else {
#pragma GCC unroll 2
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t x = i * kNext;
      pairs[i][0] = even(0, x, 1, x);
      pairs[i][1] = odd(0, x, 1, x);
      pairs[i][2] = even(0, x + 2, 1, x + 2);
      pairs[i][3] = even(2, x, 2, x + 1);
      pairs[i][4] = odd(2, x, 2, x + 1);
    }
  }
  __m256i parts[2][2];
#pragma GCC unroll 2
  for (int64_t part = 0; part < 2; ++part) {
#pragma GCC unroll 5
    for (int64_t i = 0; i < kSplitPairs; ++i) {
      __m256i weight = load_256(weights + (part * kSplitPairs + i) * 32);
      __asm__("" : "+x"(weight));  // loaded once
#pragma GCC unroll 2
      for (int64_t two = 0; two < 2; ++two) {
        const __m256i products = _mm256_maddubs_epi16(pairs[two][i], weight);
        parts[two][part] = i == 0 ? products : _mm256_add_epi16(parts[two][part], products);
      }
    }
  }
  const __m256i factors = _mm256_set1_epi32(16 << 16 | 1);
#pragma GCC unroll 2
  for (int64_t two = 0; two < 2; ++two) {
    const __m256i low = _mm256_unpacklo_epi16(parts[two][0], parts[two][1]),
                  high = _mm256_unpackhi_epi16(parts[two][0], parts[two][1]);
    sums[two][0] = __builtin_bit_cast(Ints, _mm256_madd_epi16(low, factors));
    sums[two][1] = __builtin_bit_cast(Ints, _mm256_madd_epi16(high, factors));
  }
}

// Numbers of a block's channels, twice: of channels 0 to 3 and 4 to 7.
[[gnu::always_inline]] inline Floats twice(const float* from) {
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(from));
}
[[gnu::always_inline]] inline Ints twice(const int32_t* from) {
  return __builtin_bit_cast(Ints, _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

// Writes four pixels as WriteBytes does.
template <int stride>
class SplitBytes {
 public:
  SplitBytes(const QuantizedGroupedConvolution& a, int64_t block) : bytes_(a.to, nullptr, nullptr, 0, false) {
    FactorsOfQuotients<kLanes> quotients;
    quotients.set(a.to, a.factors + block * kLanes, a.bias + block * kLanes);
    for (int64_t half = 0; half < 2; ++half) {
      offsets_[half] = twice(a.offsets + block * kLanes + 4 * half);
      factors_[half] = twice(quotients.factors + 4 * half);
      bias_[half] = twice(quotients.bias + 4 * half);
    }
  }
  [[gnu::always_inline]] void put(int64_t at, const Ints (&sums)[2][2]) const {
    const auto words = [&](const Ints(&two)[2]) __attribute__((always_inline)) {
      const __m256i packed = _mm256_packs_epi32(whole(two[0], 0), whole(two[1], 1));
      return _mm256_adds_epi16(packed, _mm256_set1_epi32(bytes_.zero));
    };
    __m256i bytes = _mm256_packus_epi16(words(sums[0]), words(sums[1]));
    if (stride == 2) bytes = _mm256_permute4x64_epi64(bytes, 0xD8);
    store_ints(bytes_.output + at, bytes_.limited(__builtin_bit_cast(Ints, bytes)));
  }

 private:
  [[gnu::always_inline]] __m256i whole(Ints sums, int64_t half) const {
    const Floats value = multiply_add(to_floats(sums + offsets_[half]), factors_[half], bias_[half]);
    return __builtin_bit_cast(__m256i, round_to_ints(value));
  }

  WriteBytes<false> bytes_;
  Ints offsets_[2];
  Floats factors_[2], bias_[2];
};

// Computes rows of one block of one sample. Keeps the rows that windows cover, with their padding; row r, counted from
// the top padding on, at r modulo kRows. Of short rows, those of the next outputs are copied before a row is computed:
// what was stored just now cannot be loaded from other places without waiting for it.
template <int stride, typename Output>
class SplitWorker {
 public:
  SplitWorker(const QuantizedGroupedConvolution& a, const Output& output)
      : a_(a),
        output_(output),
        row_bytes_(a.row_bytes()),
        bytes_(static_cast<uint8_t*>(a.scratch) + omp_get_thread_num() * thread_stride(a.thread_scratch())) {
    __builtin_memset(bytes_, a.input_zero, static_cast<size_t>(kRows * row_bytes_));
  }

  void run(int64_t sample, int64_t block, int64_t first, int64_t last) {
    const MapShape &in = a_.input_shape, &out = a_.output_shape;
    const uint8_t* const image = a_.input + (sample * in.blocks() + block) * in.pixels() * kLanes;
    const int8_t* const weights = a_.weights + block * a_.weight_bytes();
    const bool writes =
        out.width >= kSplitTile && WriteBytes<false>::fits(a_.to, a_.factors + block * kLanes, a_.bias + block * kLanes,
                                                           kLanes, a_.window_pixels());
    const SplitBytes<stride> bytes(a_, block);
    for (int64_t& row : held_) row = INT64_MIN;
    const int64_t step = a_.window.stride_height;
    // With longer steps the next rows would lie where this window's are.
    const bool ahead = a_.output_shape.width <= kShortRow && step <= kRows - 6;
    for (int64_t y = first; y < last; ++y) {
      const uint8_t* rows[3];
      for (int64_t ky = 0; ky < 3; ++ky) rows[ky] = row_of(image, y * step + ky);
      for (int64_t ky = 0; ahead && y + 1 < last && ky < 3; ++ky) row_of(image, (y + 1) * step + ky);
      const int64_t to = ((sample * out.blocks() + block) * out.height + y) * out.width * kLanes;
      writes ? write_row(rows, weights, bytes, to) : put_row(rows, weights, block, to);
    }
  }

 private:
  static constexpr int64_t kRows = QuantizedGroupedConvolution::kSplitRows, kShortRow = 28;

  // Row `padded` is counted from the top padding on.
  const uint8_t* row_of(const uint8_t* image, int64_t padded) {
    const int64_t slot = padded % kRows, row = padded - a_.window.top, size = a_.input_shape.width * kLanes;
    uint8_t* const kept = bytes_ + slot * row_bytes_;
    if (held_[slot] != padded) {
      held_[slot] = padded;
      uint8_t* const to = kept + a_.window.left * kLanes;
      if (row >= 0 && row < a_.input_shape.height) {
        copy_row(to, image + row * size, size);
      } else {
        __builtin_memset(to, a_.input_zero, static_cast<size_t>(size));
      }
    }
    return kept;
  }

  // Copies `size` bytes, a multiple of 8, without a call.
  [[gnu::always_inline]] static void copy_row(uint8_t* to, const uint8_t* from, int64_t size) {
    int64_t i = 0;
    for (; i + 32 <= size; i += 32) store_ints(to + i, load_ints(from + i));
    if (size >= 32) return store_ints(to + size - 32, load_ints(from + size - 32));
    for (; i < size; i += 8) __builtin_memcpy(to + i, from + i, 8);
  }

  [[gnu::always_inline]] static void tile(const uint8_t* const (&rows)[3], int64_t x, const int8_t* weights,
                                          Ints (&sums)[2][2]) {
    const int64_t from = x * stride * kLanes;
    split_tile<stride>({rows[0] + from, rows[1] + from, rows[2] + from}, weights, sums);
  }

  // The last tile begins early where the row is not a whole number of tiles.
  void write_row(const uint8_t* const (&rows)[3], const int8_t* weights, const SplitBytes<stride>& bytes,
                 int64_t to) const {
    const int64_t last = a_.output_shape.width - kSplitTile;
    for (int64_t next = 0; next < last + kSplitTile; next += kSplitTile) {
      const int64_t x = smaller(next, last);
      Ints sums[2][2];
      tile(rows, x, weights, sums);
      bytes.put(to + x * kLanes, sums);
    }
  }

  void put_row(const uint8_t* const (&rows)[3], const int8_t* weights, int64_t block, int64_t to) const {
    const Ints offset = load_ints(a_.offsets + block * kLanes);
    const Floats factor = Output::factor(a_.to, a_.factors + block * kLanes),
                 bias = Output::factor(a_.to, a_.bias + block * kLanes);
    const Bits lanes = channel_lanes(a_.output_shape, block);
    for (int64_t x = 0; x < a_.output_shape.width; x += kSplitTile) {
      Ints sums[2][2];
      tile(rows, x, weights, sums);
      Floats values[kSplitTile];
#pragma GCC unroll 2
      for (int64_t i = 0; i < 2; ++i) {
        const auto low = __builtin_bit_cast(__m256i, sums[i][0]), high = __builtin_bit_cast(__m256i, sums[i][1]);
        const auto value = [&](__m256i sum) __attribute__((always_inline)) {
          return multiply_add(to_floats(__builtin_bit_cast(Ints, sum) + offset), factor, bias);
        };
        values[stride == 1 ? i : 2 * i] = value(_mm256_permute2x128_si256(low, high, 0x20));
        values[stride == 1 ? i + 2 : 2 * i + 1] = value(_mm256_permute2x128_si256(low, high, 0x31));
      }
      output_.put_products(to + x * kLanes, values, smaller(kSplitTile, a_.output_shape.width - x), lanes);
    }
  }

  const QuantizedGroupedConvolution& a_;
  const Output& output_;
  int64_t row_bytes_;
  uint8_t* bytes_;
  int64_t held_[kRows];
};
#endif

// Writes the weights of a block, of one channel each lane: the five pairs of the lower parts, twice, and those of the
// higher.
inline void pack_split(const QuantizedGroupedPack& a, int64_t b) {
  int8_t* const to = a.packed + b * a.weight_bytes();
  const int64_t first[kSplitPairs] = {0, 1, 2, 6, -1}, second[kSplitPairs] = {3, 4, 5, 7, 8};
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const int64_t channel = b * kLanes + lane;
    for (int64_t pair = 0; pair < kSplitPairs; ++pair) {
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t tap = i == 0 ? first[pair] : second[pair];
        const int32_t weight = channel < a.output_shape.channels && tap >= 0 ? a.plain[channel * 9 + tap] : 0;
        const int32_t high = (weight + 8) >> 4, low = weight - 16 * high;
        for (int64_t copy = 0; copy < 2; ++copy) {
          const int64_t at = pair * 32 + copy * 16 + lane * 2 + i;
          to[at] = static_cast<int8_t>(low);
          to[at + kSplitPairs * 32] = static_cast<int8_t>(high);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
