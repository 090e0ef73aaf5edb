// Sums of quantized convolutions: a tile of pixels times a panel of output blocks, in registers. Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/quantized/dot.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// The most pixels of a tile: registers hold its sums, the weights of a word, and one word in all lanes.
constexpr int kQuantizedTile = kLanes == 16 ? 14 : 6;

// What all tiles of a panel have in common. Distances are in elements.
template <typename Dot>
struct Multiply {
  const typename Dot::Weight* weights;
  int64_t in_blocks, block_step;  // of the source
  const int64_t* places;          // [window]: from an output's pixel to the one that is multiplied
  int64_t window;
  const int32_t* offsets;  // [blocks of the panel * kLanes], what sums begin with
};

// What becomes of a tile's sums: they are stored as [block][pixel][lane].
struct StoreSums {
  int32_t* to;

  template <int pixels, int blocks>
  [[gnu::always_inline]] void operator()(const Ints (&sums)[pixels][blocks]) const {
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) {
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) store_ints(to + (v * pixels + p) * kLanes, sums[p][v]);
    }
  }
};

// The same, as a part of more pixels: blocks are `step` apart.
struct StoreSumsApart {
  int32_t* to;
  int64_t step;

  template <int pixels, int blocks>
  [[gnu::always_inline]] void operator()(const Ints (&sums)[pixels][blocks]) const {
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) {
#pragma GCC unroll 20
      for (int p = 0; p < pixels; ++p) store_ints(to + v * step + p * kLanes, sums[p][v]);
    }
  }
  void advance(int64_t pixels) {
    to += pixels * kLanes;
  }
};

// What a sum runs over: a loop within a loop costs compilers a move of each sum per turn.
enum class Terms { kBlocksAndPlaces, kBlocks, kPlaces };

// Returns the sums of `first` neighbouring pixels from `from` on and of `second` from `from` + `jump` on. kPixel is the
// number of elements of a pixel.
template <typename Dot, int64_t kPixel, int first, int second, int blocks, Terms terms>
[[gnu::always_inline]] inline void add_products(const Multiply<Dot>& m, const typename Dot::Element* from, int64_t jump,
                                                Ints (&sums)[first + second][blocks]) {
  constexpr int kPixels = first + second;
#pragma GCC unroll 2
  for (int v = 0; v < blocks; ++v) {
    const Ints offset = load_ints(m.offsets + v * kLanes);
#pragma GCC unroll 14
    for (int p = 0; p < kPixels; ++p) sums[p][v] = offset;
  }
  const typename Dot::Weight* weights = m.weights;
  const auto add = [&](const typename Dot::Element* near) __attribute__((always_inline)) {
    const typename Dot::Element* const far = near + jump;
#pragma GCC unroll 4
    for (int64_t k = 0; k < kPixel; k += Dot::kInWord, weights += blocks * kLanes * Dot::kInWord) {
      Ints line[blocks];
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) line[v] = load_ints(weights + v * kLanes * Dot::kInWord);
#pragma GCC unroll 14
      for (int p = 0; p < kPixels; ++p) {
        const Ints word = fill_word(p < first ? near + p * kPixel + k : far + (p - first) * kPixel + k);
#pragma GCC unroll 2
        for (int v = 0; v < blocks; ++v) sums[p][v] = Dot::add(sums[p][v], word, line[v]);
      }
    }
  };
  if constexpr (terms == Terms::kBlocks) {
    for (int64_t b = 0; b < m.in_blocks; ++b, from += m.block_step) add(from);
  } else if constexpr (terms == Terms::kPlaces) {
    for (int64_t place = 0; place < m.window; ++place) add(from + m.places[place]);
  } else {
    for (int64_t b = 0; b < m.in_blocks; ++b, from += m.block_step) {
      for (int64_t place = 0; place < m.window; ++place) add(from + m.places[place]);
    }
  }
}

// Calls end(sums) with such sums.
template <typename Dot, int64_t kPixel, int first, int second, int blocks, Terms terms, typename End>
[[gnu::noinline]] void multiply_tile(const Multiply<Dot>& m, const typename Dot::Element* from, int64_t jump,
                                     const End& end) {
  Ints sums[first + second][blocks];
  add_products<Dot, kPixel, first, second, blocks, terms>(m, from, jump, sums);
  end(sums);
}

// Computes `tiles` whole tiles that follow each other, and calls begin() before each: where a tile has few products,
// what precedes them costs as much. `end` moves from tile to tile.
template <typename Dot, int64_t kPixel, int blocks, Terms terms, typename Begin, typename End>
[[gnu::noinline]] void multiply_tiles(const Multiply<Dot>& m, int64_t tiles, const typename Dot::Element* from,
                                      const Begin& begin, End end) {
  for (int64_t t = 0; t < tiles; ++t, from += kQuantizedTile * kPixel) {
    begin();
    Ints sums[kQuantizedTile][blocks];
    add_products<Dot, kPixel, kQuantizedTile, 0, blocks, terms>(m, from, 0, sums);
    end(sums);
    end.advance(kQuantizedTile);
  }
}

// Computes a tile of `count` neighbours, 1 to `pixels`.
template <typename Dot, int64_t kPixel, int blocks, Terms terms, int pixels = kQuantizedTile, typename End>
[[gnu::always_inline]] inline void multiply_row(const Multiply<Dot>& m, int64_t count,
                                                const typename Dot::Element* from, const End& end) {
  if constexpr (pixels > 1) {
    if (count < pixels) return multiply_row<Dot, kPixel, blocks, terms, pixels - 1>(m, count, from, end);
  }
  multiply_tile<Dot, kPixel, pixels, 0, blocks, terms>(m, from, 0, end);
}

// Computes a tile of two rows of `count` neighbours each, 1 to `pixels`.
template <typename Dot, int64_t kPixel, int blocks, int pixels = kQuantizedTile / 2>
[[gnu::always_inline]] inline void multiply_two_rows(const Multiply<Dot>& m, int64_t count,
                                                     const typename Dot::Element* from, int64_t jump,
                                                     const StoreSums& end) {
  if constexpr (pixels > 1) {
    if (count < pixels) return multiply_two_rows<Dot, kPixel, blocks, pixels - 1>(m, count, from, jump, end);
  }
  multiply_tile<Dot, kPixel, pixels, pixels, blocks, Terms::kBlocksAndPlaces>(m, from, jump, end);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
