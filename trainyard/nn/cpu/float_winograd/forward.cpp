#include <omp.h>

#include "trainyard/nn/cpu/float_winograd/tile.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Of transformed pixels and products, which stay in a core's cache where channels are few. Where they are many, the
// weights do not fit there, and each chunk reads them once more: then it has at least kLeastTiles.
constexpr int64_t kChunkBytes = 640 << 10, kLeastTiles = 8 * kRows, kMostTiles = 20 * kRows;
constexpr int64_t kDepth = 256;  // input channels that one sweep sums over: a panel of their weights stays in L1

// A thread works on its tiles in chunks. This is its memory for one.
struct Chunk {
  int64_t tiles, pixels_apart, products_apart;  // apart: elements between points
  [[gnu::always_inline]] int64_t bytes() const { return kPoints * (pixels_apart + products_apart) * 4; }
};

Chunk chunk_of(const FloatWinogradShape& s, int threads) {
  const int64_t a_tile = kPoints * 4 * (s.in_channels + s.out_channels);
  const int64_t fitting = kChunkBytes / a_tile / kRows * kRows;
  const int64_t share = (s.tiles() + threads - 1) / threads;
  const int64_t tiles = smaller(smaller(larger(fitting, kLeastTiles), kMostTiles), share);
  return {.tiles = tiles, .pixels_apart = apart(tiles, s.in_channels), .products_apart = apart(tiles, s.out_channels)};
}

// Writes transformed pixels: [point][tile][channel].
void transform_source(const FloatWinogradForward& a, const Chunk& chunk, int64_t first, int64_t count, float* pixels) {
  const FloatWinogradShape& s = a.shape;
  const int64_t blocks = s.in_channels / kLanes, block_elements = s.in_height * s.in_width * kLanes;
  for_tiles(
      count, blocks, [&](int64_t t, int64_t b) __attribute__((always_inline)) {
        const Tile tile = tile_at(s, first + t);
        Floats d[kSide][kSide], transformed[kSide][kSide];
        load_square(a.source + (tile.sample * blocks + b) * block_elements, s.in_height, s.in_width, tile.row - s.top,
                    tile.column - s.left, d);
        transform_square(transform_pixels, d, transformed);
        float* const to = pixels + t * row_of(s.in_channels) + b * kLanes;
        for (int point = 0; point < kPoints; ++point) {
          store(to + point * chunk.pixels_apart, transformed[point / kSide][point % kSide]);
        }
      });
}

void multiply_points(const FloatWinogradForward& a, const Chunk& chunk, int64_t count, const float* pixels,
                     float* products) {
  const FloatWinogradShape& s = a.shape;
  const float* weights = a.weights;
  for (int64_t point = 0; point < kPoints; ++point) {
    for (int64_t column = 0; column < s.out_channels; column += kPanel) {
      const int64_t columns = smaller(kPanel, s.out_channels - column);
      for (int64_t channel = 0; channel < s.in_channels; channel += kDepth) {
        const int64_t depth = smaller(kDepth, s.in_channels - channel);
        multiply({pixels + point * chunk.pixels_apart + channel, row_of(s.in_channels), 1}, weights, columns,
                 products + point * chunk.products_apart + column, row_of(s.out_channels), count, columns, depth,
                 /*accumulate=*/channel > 0);
        weights += depth * columns;
      }
    }
  }
}

void write_output(const FloatWinogradForward& a, const Chunk& chunk, int64_t first, int64_t count,
                  const float* products) {
  const FloatWinogradShape& s = a.shape;
  const int64_t blocks = s.out_channels / kLanes, block_elements = s.out_height * s.out_width * kLanes;
  for_tiles(
      count, blocks, [&](int64_t t, int64_t b) __attribute__((always_inline)) {
        const Tile tile = tile_at(s, first + t);
        const int64_t height = smaller(kTile, s.out_height - tile.row),
                      width = smaller(kTile, s.out_width - tile.column);
        float* const block =
            a.output + (tile.sample * blocks + b) * block_elements + (tile.row * s.out_width + tile.column) * kLanes;
        const float* const from = products + t * row_of(s.out_channels) + b * kLanes;
        Floats m[kSide][kSide], y[kTile][kTile];
        for (int point = 0; point < kPoints; ++point) {
          m[point / kSide][point % kSide] = load(from + point * chunk.products_apart);
        }
        transform_square(transform_products, m, y);
        const Floats bias = a.bias == nullptr ? Floats{} : load_first(a.bias + b * kLanes, a.bias_count - b * kLanes);
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            float* const to = block + (i * s.out_width + j) * kLanes;
            Floats value = y[i][j] + bias;
            if (a.add) value += load(to);
            if (a.relu) value = at_least(0, value);  // NaN stays
            store(to, value);
          }
        }
      });
}

}  // namespace

void float_winograd_forward(const FloatWinogradForward& a) {
  const Chunk chunk = chunk_of(a.shape, a.threads);
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes = a.threads * chunk.bytes();
    return;
  }
  const int64_t tiles = a.shape.tiles();
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    float* const pixels = static_cast<float*>(a.scratch) + thread * (chunk.bytes() / 4);
    float* const products = pixels + kPoints * chunk.pixels_apart;
    const int64_t end = tiles * (thread + 1) / threads;
    for (int64_t first = tiles * thread / threads; first < end; first += chunk.tiles) {
      const int64_t count = smaller(chunk.tiles, end - first);
      transform_source(a, chunk, first, count, pixels);
      multiply_points(a, chunk, count, pixels, products);
      write_output(a, chunk, first, count, products);
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
