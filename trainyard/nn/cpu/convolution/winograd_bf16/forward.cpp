#include <omp.h>

#include "trainyard/nn/cpu/convolution/epilogue.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/multiply.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {

constexpr int64_t kChunkBytes = 640 << 10;  // of transformed pixels and products: they stay in a core's cache

// A thread works on its tiles in chunks. This is its memory for one.
struct Chunk {
  int64_t tiles, pixels_apart, products_apart;  // apart: elements between points
  [[gnu::always_inline]] int64_t pixel_bytes() const { return kPoints * pixels_apart * 2; }
  [[gnu::always_inline]] int64_t bytes() const { return pixel_bytes() + kPoints * products_apart * 4; }
};

// Returns whether threads share out the weights instead of the tiles: where tiles are so few that all threads together
// move less of them from core to core than one thread reads of weights.
bool shares_out_weights(const Shape& s, int64_t threads) {
  const int64_t moved = s.tiles() * kPoints * (2 * s.in_channels + 4 * s.out_channels);
  return threads > 1 && 4 * moved <= weights_bytes(s);
}

Chunk chunk_of(const Shape& s, int64_t threads) {
  if (shares_out_weights(s, threads)) {
    const int64_t tiles = s.tiles();
    return {
        .tiles = tiles, .pixels_apart = apart(tiles * s.in_channels), .products_apart = apart(tiles * s.out_channels)};
  }
  const int64_t a_tile = kPoints * (2 * s.in_channels + 4 * s.out_channels);
  const int64_t fitting = kChunkBytes / a_tile / kRows * kRows;
  const int64_t tiles = smaller(larger(fitting, 4 * kRows), 20 * kRows);
  return {
      .tiles = tiles, .pixels_apart = apart(tiles * s.in_channels), .products_apart = apart(tiles * s.out_channels)};
}

// Writes transformed pixels of the tiles [first, first + count) into a chunk: [point][tile][channel].
void transform_source(const Forward& a, const Chunk& chunk, int64_t first, int64_t count, uint16_t* pixels) {
  const Shape& s = a.shape;
  const int64_t blocks = s.in_channels / kLanes, block_elements = s.in_height * s.in_width * kLanes;
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_at(s, first + t);
    const uint16_t* block = static_cast<const uint16_t*>(a.source) + tile.sample * blocks * block_elements;
    for (int64_t b = 0; b < blocks; ++b, block += block_elements) {
      Floats d[4][4], u[4][4];
      load_rows<0, 4>(block, s.in_height, s.in_width, tile.row - s.top, tile.column - s.left, d);
      transform_pixels<0, 4>(d, u);
      uint16_t* const to = pixels + t * s.in_channels + b * kLanes;
      for (int point = 0; point < kPoints; ++point) {
        store_bfloats(to + point * chunk.pixels_apart, u[point / 4][point % 4]);
      }
    }
  }
}

int64_t panels_of(const Shape& s) {
  return (s.out_channels + kPanel - 1) / kPanel;
}

// Multiplies by the panels [first, end) of the weights, which lie one behind the other, point by point.
void multiply_panels(const Forward& a, const Chunk& chunk, int64_t count, const uint16_t* pixels, float* products,
                     int64_t first, int64_t end) {
  const Shape& s = a.shape;
  const int64_t panels = panels_of(s), pairs = s.in_channels / 2;
  for (int64_t i = first; i < end; ++i) {
    const int64_t point = i / panels, column = i % panels * kPanel, columns = smaller(kPanel, s.out_channels - column);
    multiply({.a = reinterpret_cast<const uint32_t*>(pixels + point * chunk.pixels_apart),
              .row_stride = pairs,
              .pair_stride = 1,
              .b = static_cast<const uint32_t*>(a.weights) + (point * s.out_channels + column) * pairs,
              .b_stride = columns,
              .vector_stride = kLanes,
              .pairs = pairs,
              .out = products + point * chunk.products_apart + column,
              .out_stride = s.out_channels,
              .accumulate = false,
              .ahead = i + 1 < end ? pairs * columns : 0},
             count, columns);
  }
}

void write_output(const Forward& a, const Chunk& chunk, int64_t first, int64_t count, const float* products) {
  const Shape& s = a.shape;
  const int64_t blocks = s.out_channels / kLanes, block_elements = s.out_height * s.out_width * kLanes;
  for (int64_t t = 0; t < count; ++t) {
    const Tile tile = tile_at(s, first + t);
    const int64_t height = smaller(2, s.out_height - tile.row), width = smaller(2, s.out_width - tile.column);
    uint16_t* block = static_cast<uint16_t*>(a.output) + tile.sample * blocks * block_elements +
                      (tile.row * s.out_width + tile.column) * kLanes;
    for (int64_t b = 0; b < blocks; ++b, block += block_elements) {
      const float* const from = products + t * s.out_channels + b * kLanes;
      Floats m[4][4], y[2][2];
      for (int point = 0; point < kPoints; ++point) {
        m[point / 4][point % 4] = _mm512_loadu_ps(from + point * chunk.products_apart);
      }
      transform_products(m, y);
      Floats bias = _mm512_setzero_ps();
      if (a.bias != nullptr) {
        bias = _mm512_maskz_loadu_ps(lanes_before(a.bias_count - b * kLanes), a.bias + b * kLanes);
      }
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t j = 0; j < width; ++j) {
          uint16_t* const to = block + (i * s.out_width + j) * kLanes;
          const auto* const old = reinterpret_cast<const TRAINYARD_ISA::Bfloat16*>(to);
          store_bfloats(to, TRAINYARD_ISA::epilogue(a, y[i][j] + bias, old));
        }
      }
    }
  }
}

}  // namespace

int64_t forward_scratch_bytes(const Shape& shape, int threads) {
  return (shares_out_weights(shape, threads) ? 1 : threads) * chunk_of(shape, threads).bytes();
}

void forward(const Forward& a) {
  const bool shares = shares_out_weights(a.shape, a.threads);
  const Chunk chunk = chunk_of(a.shape, a.threads);
  const int64_t tiles = a.shape.tiles(), all_panels = kPoints * panels_of(a.shape);
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    auto* const memory = static_cast<uint8_t*>(a.scratch) + (shares ? 0 : thread * chunk.bytes());
    auto* const pixels = reinterpret_cast<uint16_t*>(memory);
    auto* const products = reinterpret_cast<float*>(memory + chunk.pixel_bytes());
    const int64_t begin = tiles * thread / threads, end = tiles * (thread + 1) / threads;
    if (shares) {
      transform_source(a, chunk, begin, end - begin, pixels + begin * a.shape.in_channels);
#pragma omp barrier
      multiply_panels(a, chunk, tiles, pixels, products, all_panels * thread / threads,
                      all_panels * (thread + 1) / threads);
#pragma omp barrier
      write_output(a, chunk, begin, end - begin, products + begin * a.shape.out_channels);
    } else {
      for (int64_t first = begin; first < end; first += chunk.tiles) {
        const int64_t count = smaller(chunk.tiles, end - first);
        transform_source(a, chunk, first, count, pixels);
        multiply_panels(a, chunk, count, pixels, products, 0, all_panels);
        write_output(a, chunk, first, count, products);
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::winograd_bf16
