#include <omp.h>

#include "trainyard/nn/cpu/winograd/bias_gradient.h"
#include "trainyard/nn/cpu/winograd/multiply.h"

namespace trainyard::nn::cpu::winograd {
namespace {

constexpr int64_t kChunkBytes = 4 << 20;  // a thread's share of transformed pixels and gradients
constexpr int64_t kDepth = 192;           // tiles that one sweep sums over: a panel of their gradients stays in L1

// All threads work on a chunk of tiles at once. Tiles go in pairs.
struct Chunk {
  int64_t tiles, pixels_apart, gradients_apart;  // apart: elements between points
  [[gnu::always_inline]] int64_t pixel_bytes() const { return kPoints * pixels_apart * 2; }
  [[gnu::always_inline]] int64_t bytes() const { return pixel_bytes() + kPoints * gradients_apart * 2; }
};

Chunk chunk_of(const Shape& s, int threads) {
  const int64_t a_tile = kPoints * 2 * (s.in_channels + s.out_channels);
  const int64_t fitting = larger(1, kChunkBytes * threads / a_tile / kDepth) * kDepth;
  const int64_t tiles = smaller(fitting, (s.tiles() + 1) / 2 * 2);
  return {
      .tiles = tiles, .pixels_apart = apart(tiles * s.in_channels), .gradients_apart = apart(tiles * s.out_channels)};
}

// Writes tile `tile` and the next one (zeros where the first is `alone`), all channels, as pairs: [point][channel].
// transformed(tile, block, points) computes a channel block of a tile.
template <typename Transformed>
[[gnu::always_inline]] inline void transform_pair(int64_t tile, bool alone, int64_t blocks, int64_t points_apart,
                                                  uint16_t* to, const Transformed& transformed) {
  for (int64_t b = 0; b < blocks; ++b) {
    Floats first[4][4], second[4][4] = {};
    transformed(tile, b, first);
    if (!alone) transformed(tile + 1, b, second);
    for (int point = 0; point < kPoints; ++point) {
      store_pairs(to + point * points_apart + b * kLanes * 2, first[point / 4][point % 4],
                  second[point / 4][point % 4]);
    }
  }
}

void transform(const BackwardWeights& a, const Chunk& chunk, int64_t first, int64_t count, uint16_t* pixels,
               uint16_t* gradients) {
  const Shape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, in_elements = s.in_height * s.in_width * kLanes;
  const int64_t out_blocks = s.out_channels / kLanes, out_elements = s.out_height * s.out_width * kLanes;
#pragma omp for schedule(static)
  for (int64_t pair = 0; pair < (count + 1) / 2; ++pair) {
    const int64_t tile = first + 2 * pair;
    const bool alone = 2 * pair + 1 == count;
    transform_pair(
        tile, alone, in_blocks, chunk.pixels_apart, pixels + pair * s.in_channels * 2,
        [&](int64_t index, int64_t b, Floats(&d)[4][4]) __attribute__((always_inline)) {
          const Tile at = tile_at(s, index);
          load_square(static_cast<const uint16_t*>(a.source) + (at.sample * in_blocks + b) * in_elements, s.in_height,
                      s.in_width, at.row - s.top, at.column - s.left, d);
          transform_pixels(d);
        });
    transform_pair(
        tile, alone, out_blocks, chunk.gradients_apart, gradients + pair * s.out_channels * 2,
        [&](int64_t index, int64_t b, Floats(&z)[4][4]) __attribute__((always_inline)) {
          const Tile at = tile_at(s, index);
          Floats y[2][2];
          load_square(static_cast<const uint16_t*>(a.output_gradient) + (at.sample * out_blocks + b) * out_elements,
                      s.out_height, s.out_width, at.row, at.column, y);
          transform_gradient(y, z);
        });
  }
}

// Adds a chunk's products to the gradient.
void multiply_points(const BackwardWeights& a, const Chunk& chunk, bool first_chunk, int64_t count,
                     const uint16_t* pixels, const uint16_t* gradients) {
  const Shape& s = a.shape;
  const int64_t panels = (s.out_channels + kPanel - 1) / kPanel;
#pragma omp for schedule(dynamic)
  for (int64_t task = 0; task < kPoints * panels; ++task) {
    const int64_t point = task / panels, column = task % panels * kPanel;
    for (int64_t tile = 0; tile < count; tile += kDepth) {
      multiply({.a = reinterpret_cast<const uint32_t*>(pixels + point * chunk.pixels_apart) + tile / 2 * s.in_channels,
                .row_stride = 1,
                .pair_stride = s.in_channels,
                .b = reinterpret_cast<const uint32_t*>(gradients + point * chunk.gradients_apart) +
                     tile / 2 * s.out_channels + column,
                .b_stride = s.out_channels,
                .pairs = (smaller(kDepth, count - tile) + 1) / 2,
                .out = a.gradient + point * s.in_channels * s.out_channels + column,
                .out_stride = s.out_channels,
                .accumulate = !first_chunk || tile > 0},
               s.in_channels, smaller(kPanel, s.out_channels - column));
    }
  }
}

}  // namespace

int64_t backward_weights_scratch_bytes(const Shape& shape, int threads) {
  return chunk_of(shape, threads).bytes();
}

void backward_weights(const BackwardWeights& a) {
  const Chunk chunk = chunk_of(a.shape, a.threads);
  auto* const pixels = static_cast<uint16_t*>(a.scratch);
  auto* const gradients = reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(a.scratch) + chunk.pixel_bytes());
  const int64_t tiles = a.shape.tiles();
#pragma omp parallel num_threads(a.threads)
  {
    for (int64_t first = 0; first < tiles; first += chunk.tiles) {
      const int64_t count = smaller(chunk.tiles, tiles - first);
      transform(a, chunk, first, count, pixels, gradients);
      multiply_points(a, chunk, first == 0, count, pixels, gradients);
    }
    if (a.bias_gradient != nullptr) {
      sum_gradients({.batch = a.shape.batch,
                     .blocks = a.shape.out_channels / kLanes,
                     .height = a.shape.out_height,
                     .width = a.shape.out_width,
                     .gradient = static_cast<const uint16_t*>(a.output_gradient),
                     .sums = a.bias_gradient,
                     .count = a.bias_count});
    }
  }
}

}  // namespace trainyard::nn::cpu::winograd
