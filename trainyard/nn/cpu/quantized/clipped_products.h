// Products of bytes by vpmaddubsw, which adds two products in 16 bits, and of two such sums in 16 bits before they
// become 32. Exact for any bytes and weights, because activations are clipped first. Follows the rules of
// nn/cpu/simd/compiled_for.h.
//
// A byte x is first + near + beyond, near = clamp(x - first, 0, kMostNear). A pair's products with `near` are at most
// kMostNear * 2 * 127 = 32766, so that nothing saturates. Those of four channels span kMostNear * 4 * 127 = 65532
// numbers, which 16 bits have when a constant that the weights determine, their center, is added. `beyond` is zero but
// for outliers: lists of words that have one, a pixel's at a time. Where no four weights reach so far that their
// products need a center, it is zero for all of a panel's outputs, and left out.
#pragma once

#include "trainyard/nn/cpu/quantized/multiply.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int32_t kMostNear = 129;
static_assert(2 * 127 * kMostNear <= 32767 && 4 * 127 * kMostNear <= 65535);

// Returns the byte at which `near` begins: about half of the range is below the zero point and half above.
[[gnu::always_inline]] inline int32_t first_of_near(int32_t input_zero) {
  return static_cast<int32_t>(smaller(larger(input_zero - kMostNear / 2, 0), 255 - kMostNear));
}

struct DotOfClipped {
  using Element = uint8_t;
  using Weight = int8_t;
  static constexpr int64_t kInWord = 4;
  static constexpr bool kReadsMaps = false;
};

constexpr int64_t kWordsOfPixel = kLanes / DotOfClipped::kInWord;

// Packed for clipped activations are: what is added to the offsets [padded out], as 32 bits; the weights as those of
// DotOfBytes; for each two words of these, the centers [output channel][two] of each block, as 16 bits.
struct ClippedWeights {
  int32_t* corrections;
  int8_t* weights;
  int16_t* centers;

  ClippedWeights(const QuantizedConvolution& a, int8_t* packed)
      : corrections(reinterpret_cast<int32_t*>(packed)),
        weights(packed + a.correction_bytes()),
        centers(
            reinterpret_cast<int16_t*>(weights + a.output_shape.padded_channels() * a.input_shape.padded_channels())) {}
};

// The outliers of a chunk, whose pixels lie as [input block][pixel][lane].
class Outliers {
 public:
  // Where more words have one, multiplying pairs of 16 bits is as fast: one of kOneOf, and as many more as a word of
  // kFewPixels pixels may have, for which widening the weights would take longer.
  static constexpr int64_t kOneOf = 6, kFewPixels = 1;
  // The most pixels whose sums begin together, and stay in the first-level cache.
  static constexpr int64_t kMostRun = 112;

  Outliers(void* memory, int64_t pixels, int64_t blocks)
      : pixels_(pixels),
        run_(run_of(pixels)),
        blocks_(blocks),
        most_(most(pixels, blocks)),
        found_(static_cast<Outlier*>(memory)),
        sorted_(found_ + most_),
        begins_(reinterpret_cast<int32_t*>(sorted_ + most_)) {}

  static int64_t bytes(int64_t pixels, int64_t blocks) {
    return 2 * most(pixels, blocks) * static_cast<int64_t>(sizeof(Outlier)) + (pixels / run_of(pixels) + 3) * 4;
  }

  // Pixels of a run; the last may have fewer.
  int64_t run() const { return run_; }

  // Replaces bytes by their `near`. Returns false, with the bytes spoilt, where outliers are too many.
  bool clip(uint8_t* bytes, int32_t first) {
    count_ = 0;
    const Clip clip = {_mm256_set1_epi8(static_cast<char>(first)), _mm256_set1_epi8(static_cast<char>(kMostNear))};
    for (int64_t b = 0; b < blocks_; ++b) {
      uint8_t* const block = bytes + b * pixels_ * kLanes;
      const int64_t size = pixels_ * kLanes;
      int64_t i = 0;
      for (; i + 32 <= size; i += 32) {
        auto* const at = reinterpret_cast<__m256i*>(block + i);
        if (!note(clip, _mm256_loadu_si256(at), at, b, i)) return false;
      }
      if (i < size) {
        alignas(32) uint8_t last[32];
        __builtin_memset(last, first, sizeof(last));
        __builtin_memcpy(last, block + i, static_cast<size_t>(size - i));
        auto* const at = reinterpret_cast<__m256i*>(last);
        if (!note(clip, _mm256_load_si256(at), at, b, i)) return false;
        __builtin_memcpy(block + i, last, static_cast<size_t>(size - i));
      }
    }
    sort();
    return true;
  }

  // Writes what the sums of a run's pixels begin with, [block][pixel][lane]: `offsets` [block][lane] and the products
  // of the outliers.
  template <int blocks>
  void begin_sums(const int8_t* weights, const int32_t* offsets, int64_t run, int32_t* sums) const {
    const int64_t step = smaller(run_, pixels_ - run * run_) * kLanes;
    if (pixels_ == 1) return begin_pixel<blocks>(weights, offsets, sums);
    for (int v = 0; v < blocks; ++v) {
      const Ints begin = load_ints(offsets + v * kLanes);
      for (int64_t i = 0; i < step; i += kLanes) store_ints(sums + v * step + i, begin);
    }
    // Neighbours in this order are other pixels, whose sums do not wait for each other.
    for (const Outlier* o = sorted_ + begins_[run]; o < sorted_ + begins_[run + 1]; ++o) {
      const Ints bytes = fill_word(&o->bytes), signs = fill_word(&o->signs);
      int32_t* const of_pixel = sums + o->pixel * int64_t{kLanes};
      const int8_t* const line = weights + o->word * int64_t{blocks * kLanes * DotOfClipped::kInWord};
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) {
        const Ints weight = load_ints(line + v * kLanes * DotOfClipped::kInWord);
        store_ints(of_pixel + v * step, load_ints(of_pixel + v * step) + products(bytes, weight, signs));
      }
    }
  }

 private:
  struct Outlier {
    int32_t pixel;   // of the chunk; of the run when sorted
    int32_t word;    // of the pixel
    uint32_t bytes;  // how far each channel is beyond
    int32_t signs;   // two 16 bits: 1 above, -1 below
  };
  struct Clip {
    __m256i first, most;
  };

  // The same for a single pixel, whose sums would wait for each other in memory.
  template <int blocks>
  void begin_pixel(const int8_t* weights, const int32_t* offsets, int32_t* sums) const {
    Ints own[blocks];
    for (int v = 0; v < blocks; ++v) own[v] = load_ints(offsets + v * kLanes);
    for (const Outlier* o = sorted_; o < sorted_ + count_; ++o) {
      const Ints bytes = fill_word(&o->bytes), signs = fill_word(&o->signs);
      const int8_t* const line = weights + o->word * int64_t{blocks * kLanes * DotOfClipped::kInWord};
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) {
        own[v] += products(bytes, load_ints(line + v * kLanes * DotOfClipped::kInWord), signs);
      }
    }
    for (int v = 0; v < blocks; ++v) store_ints(sums + v * kLanes, own[v]);
  }

  // Returns as many pixels for all runs as are possible with whole tiles of four.
  static int64_t run_of(int64_t pixels) {
    const int64_t runs = larger((pixels + kMostRun - 1) / kMostRun, 1), even = (pixels + runs - 1) / runs;
    return larger((even + 3) / 4 * 4, 4);
  }

  static int64_t most(int64_t pixels, int64_t blocks) {
    // A word has two where channels lie on both sides, and clip() notes two before it counts them.
    return (pixels / kOneOf + 2 * smaller(pixels, kFewPixels)) * blocks * kWordsOfPixel + 8;
  }

  // Clips 32 bytes of block b, from its i-th on, and notes their outliers.
  [[gnu::always_inline]] bool note(const Clip& clip, __m256i bytes, __m256i* to, int64_t b, int64_t i) {
    const __m256i from_first = _mm256_subs_epu8(bytes, clip.first), near = _mm256_min_epu8(from_first, clip.most),
                  above = _mm256_sub_epi8(from_first, near), below = _mm256_subs_epu8(clip.first, bytes);
    _mm256_storeu_si256(to, near);
    const __m256i none = _mm256_cmpeq_epi32(_mm256_or_si256(above, below), _mm256_setzero_si256());
    auto words = static_cast<uint32_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(none))) & 255U;
    if (words == 0) return true;
    alignas(32) uint32_t ups[8], downs[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(ups), above);
    _mm256_store_si256(reinterpret_cast<__m256i*>(downs), below);
    for (; words != 0; words &= words - 1) {
      const int k = __builtin_ctz(words);
      const int64_t in_block = i / DotOfClipped::kInWord + k;
      const auto pixel = static_cast<int32_t>(in_block / kWordsOfPixel),
                 word = static_cast<int32_t>(b * kWordsOfPixel + in_block % kWordsOfPixel);
      if (count_ + 2 > most_) return false;
      found_[count_] = {pixel, word, ups[k], 0x10001};
      count_ += ups[k] != 0 ? 1 : 0;
      found_[count_] = {pixel, word, downs[k], -1};
      count_ += downs[k] != 0 ? 1 : 0;
    }
    return true;
  }

  // By runs, and within them in the order of words.
  void sort() {
    const int64_t runs = pixels_ / run_ + 1;
    __builtin_memset(begins_, 0, static_cast<size_t>((runs + 2) * 4));
    for (int64_t i = 0; i < count_; ++i) ++begins_[found_[i].pixel / run_ + 2];
    for (int64_t i = 2; i <= runs; ++i) begins_[i] += begins_[i - 1];
    for (int64_t i = 0; i < count_; ++i) {
      Outlier outlier = found_[i];
      const auto run = static_cast<int32_t>(outlier.pixel / run_);
      outlier.pixel -= run * static_cast<int32_t>(run_);
      sorted_[begins_[run + 1]++] = outlier;
    }
  }

  [[gnu::always_inline]] static Ints products(Ints bytes, Ints weights, Ints signs) {
#if defined(TRAINYARD_KERNELS_AVX512)
    const __m512i pairs =
        _mm512_maddubs_epi16(__builtin_bit_cast(__m512i, bytes), __builtin_bit_cast(__m512i, weights));
    return __builtin_bit_cast(Ints, _mm512_madd_epi16(pairs, __builtin_bit_cast(__m512i, signs)));
#else
    const __m256i pairs =
        _mm256_maddubs_epi16(__builtin_bit_cast(__m256i, bytes), __builtin_bit_cast(__m256i, weights));
    return __builtin_bit_cast(Ints, _mm256_madd_epi16(pairs, __builtin_bit_cast(__m256i, signs)));
#endif
  }

  int64_t pixels_, run_, blocks_, most_, count_ = 0;
  Outlier *found_, *sorted_;
  int32_t* begins_;  // of the runs, and the end of the last
};

// The most pixels of a tile: registers hold its sums, the weights of two words, and what one pixel needs. With AVX2
// these are the weights of one word, so that four pixels fit, which are written together; the others stay in memory.
template <int blocks>
constexpr int kClippedTile = (kLanes == 16 ? 20 : 8) / blocks;

template <>
struct Multiply<DotOfClipped> {
  const int8_t* weights;
  const int16_t* centers;
  int64_t in_blocks, block_step;  // of the source
  const bool* has_centers;        // [in_blocks], where centers may be left out, or null: all have
};

// Whether blocks whose centers are all zero are multiplied without them. With more lanes they are rare.
constexpr bool kSkipsCenters = kLanes == 8;

#if !defined(TRAINYARD_KERNELS_AVX512)
// Sets flags[i] to whether block i's centers, of `blocks` output blocks, are not all zero, and returns the flags; null
// where more than a quarter is set, since a processor would not foresee which.
inline const bool* find_centers(const int16_t* centers, int64_t in_blocks, int64_t blocks, bool* flags) {
  for (int64_t b = 0, count = 0; b < in_blocks; ++b) {
    __m256i any = _mm256_setzero_si256();
    for (int64_t v = 0; v < blocks; ++v, centers += 2 * kLanes) {
      any = _mm256_or_si256(any, __builtin_bit_cast(__m256i, load_ints(centers)));
    }
    flags[b] = _mm256_testz_si256(any, any) == 0;
    count += flags[b] ? 1 : 0;
    if (4 * count > in_blocks) return nullptr;
  }
  return flags;
}
#endif

// Adds the products of two words with their weights, and centers if `centered`, to the sums. Spoils the words where
// `last` is set, which saves two registers. Written out, since compilers change the order of additions of integers.
#if defined(TRAINYARD_KERNELS_AVX512)
#define TRAINYARD_VECTOR "v"
#define TRAINYARD_HIGH_WEIGHTS "v"
#else
#define TRAINYARD_VECTOR "x"
#define TRAINYARD_HIGH_WEIGHTS "m"
#endif
template <bool last, bool centered>
[[gnu::always_inline]] inline void add_clipped(Ints& sums, Ints& low, Ints& high, Ints low_weights,
                                               const Ints& high_weights, const Ints& centers, Ints ones) {
  if constexpr (last && centered) {
    __asm__(
        "vpmaddubsw %3, %1, %1\n\tvpmaddubsw %4, %2, %2\n\tvpaddw %5, %1, %1\n\t"
        "vpaddw %2, %1, %1\n\tvpmaddwd %6, %1, %1\n\tvpaddd %1, %0, %0"
        : "+" TRAINYARD_VECTOR(sums), "+" TRAINYARD_VECTOR(low), "+" TRAINYARD_VECTOR(high)
        : TRAINYARD_VECTOR(low_weights), TRAINYARD_HIGH_WEIGHTS(high_weights), "m"(centers), TRAINYARD_VECTOR(ones));
  } else if constexpr (last) {
    __asm__(
        "vpmaddubsw %3, %1, %1\n\tvpmaddubsw %4, %2, %2\n\t"
        "vpaddw %2, %1, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
        : "+" TRAINYARD_VECTOR(sums), "+" TRAINYARD_VECTOR(low), "+" TRAINYARD_VECTOR(high)
        : TRAINYARD_VECTOR(low_weights), TRAINYARD_HIGH_WEIGHTS(high_weights), TRAINYARD_VECTOR(ones));
  } else if constexpr (centered) {
    Ints made, other;
    __asm__(
        "vpmaddubsw %5, %3, %1\n\tvpmaddubsw %6, %4, %2\n\tvpaddw %7, %1, %1\n\t"
        "vpaddw %2, %1, %1\n\tvpmaddwd %8, %1, %1\n\tvpaddd %1, %0, %0"
        : "+" TRAINYARD_VECTOR(sums), "=&" TRAINYARD_VECTOR(made), "=&" TRAINYARD_VECTOR(other)
        : TRAINYARD_VECTOR(low), TRAINYARD_VECTOR(high), TRAINYARD_VECTOR(low_weights),
          TRAINYARD_HIGH_WEIGHTS(high_weights), "m"(centers), TRAINYARD_VECTOR(ones));
  } else {
    Ints made, other;
    __asm__(
        "vpmaddubsw %5, %3, %1\n\tvpmaddubsw %6, %4, %2\n\t"
        "vpaddw %2, %1, %1\n\tvpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
        : "+" TRAINYARD_VECTOR(sums), "=&" TRAINYARD_VECTOR(made), "=&" TRAINYARD_VECTOR(other)
        : TRAINYARD_VECTOR(low), TRAINYARD_VECTOR(high), TRAINYARD_VECTOR(low_weights),
          TRAINYARD_HIGH_WEIGHTS(high_weights), TRAINYARD_VECTOR(ones));
  }
}
#undef TRAINYARD_VECTOR
#undef TRAINYARD_HIGH_WEIGHTS

// Returns the sums of `pixels` neighbours from `from` on, which begin with those at `begin`, blocks `step` apart.
template <int pixels, int blocks>
[[gnu::always_inline]] inline void add_clipped_products(const Multiply<DotOfClipped>& m, const uint8_t* from,
                                                        const int32_t* begin, int64_t step,
                                                        Ints (&sums)[pixels][blocks]) {
#pragma GCC unroll 20
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) sums[p][v] = load_ints(begin + v * step + p * kLanes);
  }
  const auto* lines = reinterpret_cast<const Ints*>(m.weights);
  const auto* centers = reinterpret_cast<const Ints*>(m.centers);
  const Ints ones = Ints{} + 0x10001;
  const auto add = [&]<bool centered>(int64_t k) __attribute__((always_inline)) {
    Ints low_weights[blocks];
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) low_weights[v] = lines[v];
    const Ints* const high_weights = lines + blocks;
#pragma GCC unroll 20
    for (int p = 0; p < pixels; ++p) {
      Ints low = fill_word(from + p * kLanes + k), high = fill_word(from + p * kLanes + k + 4);
      if constexpr (blocks == 2) {
        add_clipped<false, centered>(sums[p][0], low, high, low_weights[0], high_weights[0], centers[0], ones);
      }
      add_clipped<true, centered>(sums[p][blocks - 1], low, high, low_weights[blocks - 1], high_weights[blocks - 1],
                                  centers[blocks - 1], ones);
    }
  };
  if (kSkipsCenters && m.has_centers != nullptr) {
    for (int64_t b = 0; b < m.in_blocks; ++b, from += m.block_step, lines += 2 * blocks, centers += blocks) {
      const bool centered = m.has_centers[b];
      __asm__ volatile("" : : : "memory");  // words loaded before the branch would take registers from the sums
      centered ? add.template operator()<true>(0) : add.template operator()<false>(0);
    }
    return;
  }
  for (int64_t b = 0; b < m.in_blocks; ++b, from += m.block_step) {
#pragma GCC unroll 2
    for (int k = 0; k < kLanes; k += 8, lines += 2 * blocks, centers += blocks) add.template operator()<true>(k);
  }
}

// Calls end(sums) with such sums.
template <int pixels, int blocks, typename End>
[[gnu::noinline]] void multiply_clipped_tile(const Multiply<DotOfClipped>& m, const uint8_t* from, const int32_t* begin,
                                             int64_t step, const End& end) {
  Ints sums[pixels][blocks];
  add_clipped_products(m, from, begin, step, sums);
  end(sums);
}

// Computes `tiles` whole tiles that follow each other, as multiply_tiles() does.
template <int blocks, typename Begin, typename End>
[[gnu::noinline]] void multiply_clipped_tiles(const Multiply<DotOfClipped>& m, int64_t tiles, const uint8_t* from,
                                              const int32_t* sums_begin, int64_t step, const Begin& begin, End end) {
  constexpr int kTile = kClippedTile<blocks>;
  for (int64_t t = 0; t < tiles; ++t, from += kTile * kLanes, sums_begin += kTile * kLanes) {
    begin();
    Ints sums[kTile][blocks];
    add_clipped_products(m, from, sums_begin, step, sums);
    end(sums);
    end.advance(kTile);
  }
}

// Computes a tile of `count` neighbours, 1 to `pixels`.
template <int blocks, int pixels = kClippedTile<blocks>, typename End>
[[gnu::always_inline]] inline void multiply_clipped_row(const Multiply<DotOfClipped>& m, int64_t count,
                                                        const uint8_t* from, const int32_t* begin, int64_t step,
                                                        const End& end) {
  if constexpr (pixels > 1) {
    if (count < pixels) return multiply_clipped_row<blocks, pixels - 1>(m, count, from, begin, step, end);
  }
  multiply_clipped_tile<pixels, blocks>(m, from, begin, step, end);
}

// Writes the weights of DotOfBytes' `words` words of `blocks` blocks as those of DotOfPairs.
inline void widen_weights(const int8_t* from, int64_t words, int64_t blocks, int16_t* to) {
  for (int64_t word = 0; word < words; ++word, to += 4 * blocks * kLanes) {
    for (int64_t v = 0; v < blocks; ++v, from += kLanes * DotOfClipped::kInWord) {
      const Ints line = load_ints(from);
      store_ints(to + v * 2 * kLanes, (line << 24 >> 24 & 0xFFFF) | (line << 16 >> 24 << 16));
      store_ints(to + (blocks + v) * 2 * kLanes, (line << 8 >> 24 & 0xFFFF) | (line >> 24 << 16));
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
