// The positions of a map's tiles, their loads, and the layout of transformed numbers. Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/convolution/winograd_fp32/multiply.h"
#include "trainyard/nn/cpu/convolution/winograd_fp32/transforms.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"
#include "trainyard/nn/cpu/simd/winograd_fp32_arguments.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr Bits kAllLanes = static_cast<Bits>(~0U);

// The position of a tile: its sample, and its first pixel of the output.
struct Tile {
  int64_t sample, row, column;
};

// Sets the square `pixels`, side * side vectors, to the pixels from (row, column) on, and to zero outside of the image.
// `block` is one channel block of one sample.
template <int side>
[[gnu::always_inline]] inline void copy_square(const float* block, int64_t height, int64_t width, int64_t row,
                                               int64_t column, float* pixels) {
  for (int i = 0; i < side; ++i) {
    const bool row_inside = row + i >= 0 && row + i < height;
    const float* const from = block + ((row_inside ? row + i : 0) * width + column) * kLanes;
#pragma GCC unroll 6
    for (int j = 0; j < side; ++j) {
      const bool inside = row_inside && column + j >= 0 && column + j < width;
      store(pixels + (i * side + j) * kLanes, load_lanes(from + j * kLanes, inside ? kAllLanes : Bits{0}));
    }
  }
}

// Applies the transform to the square that begins at (row, column). write(i, j, value) receives the result.
template <int tile, typename Transform, typename Write>
[[gnu::always_inline]] inline void transform_pixels(const float* block, int64_t height, int64_t width, int64_t row,
                                                    int64_t column, const Write& write) {
  constexpr int kSide = Transform::kFrom;
  alignas(64) float copy[kSide * kSide * kLanes];
  const float* from = block + (row * width + column) * kLanes;
  int64_t row_elements = width * kLanes;
  if (row < 0 || column < 0 || row + kSide > height || column + kSide > width) {
    copy_square<kSide>(block, height, width, row, column, copy);
    from = copy;
    row_elements = kSide * kLanes;
  }
  // The processor's prefetcher does not detect the pixels of tiles after the next one.
  const float* const ahead = block + ((row + kSide - tile) * width + column + kSide + tile) * kLanes;
  for (int i = 0; i < tile; ++i) {
    for (int j = 0; j < tile; j += kGroup / kLanes) __builtin_prefetch(ahead + (i * width + j) * kLanes);
  }
  transform_square<Transform>(
      [&](int i, int j) __attribute__((always_inline)) { return load(from + i * row_elements + j * kLanes); }, write);
}

// The layout of transformed numbers: [unit of `in_unit` tiles][group of 16 channels][point][tile][channel]. So a
// transform writes to a few pages that stay in the nearest cache, and a product of matrices, which are of one point,
// reads neighbouring cache lines.
template <int64_t in_unit>
struct Layout {
  static constexpr int64_t kPoint = in_unit * kGroup;  // elements from one point to the next
  int64_t group, unit;                                 // elements from one group to the next, and from one unit

  // Returns the number of elements of so many tiles.
  [[gnu::always_inline]] int64_t elements(int64_t tiles) const { return (tiles + in_unit - 1) / in_unit * unit; }

  // Returns the address of a tile's channel block. They are kPoint elements apart.
  template <typename T>
  [[gnu::always_inline]] T* block(T* numbers, int64_t tile, int64_t block) const {
    return numbers + tile / in_unit * unit + tile % in_unit * kGroup + vector_at(block, group);
  }
};

// The lines of a point, one in_unit behind the other, go to all sets of the nearest cache, which are 64: groups are an
// odd number of lines apart, and units in_unit + 1 more than a multiple of 64.
template <int64_t in_unit>
[[gnu::always_inline]] inline Layout<in_unit> layout_of(const WinogradFp32Shape& s, int64_t channels) {
  constexpr int64_t kSets = 64;
  const int64_t group = s.points() * in_unit | 1, groups = (channels + kGroup - 1) / kGroup;
  const int64_t unit = (groups * group - in_unit - 2 + kSets) / kSets * kSets + in_unit + 1;
  return {.group = group * kGroup, .unit = unit * kGroup};
}

// Calls visit(tile, k, block) for the tiles number first + k, k < count, and the channel blocks [first_block,
// end_block); first_block is the first of a group. Neighbouring tiles of one channel block follow each other, in the
// order of the map: other orders read from too many streams for the processor's prefetcher. As many blocks as fill a
// cache line of the transformed numbers go together.
template <int tile, typename Visit>
[[gnu::always_inline]] inline void for_tiles(const WinogradFp32Shape& s, int64_t first, int64_t count,
                                             int64_t first_block, int64_t end_block, const Visit& visit) {
  constexpr int64_t kTogether = kGroup / kLanes;
  const int64_t columns = s.tile_columns(), a_sample = s.tile_rows() * columns;
  const Tile begin = {
      .sample = first / a_sample, .row = first % a_sample / columns * tile, .column = first % columns * tile};
  for (int64_t block = first_block; block < end_block; block += kTogether) {
    const int64_t end = smaller(block + kTogether, end_block);
    Tile at = begin;
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t b = block; b < end; ++b) visit(at, k, b);
      at.column += tile;
      if (at.column < s.out_width) continue;
      at.column = 0;
      at.row += tile;
      if (at.row < s.out_height) continue;
      at.row = 0;
      ++at.sample;
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
