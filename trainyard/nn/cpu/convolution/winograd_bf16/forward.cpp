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

Chunk chunk_of(const Shape& s) {
  const int64_t a_tile = kPoints * (2 * s.in_channels + 4 * s.out_channels);
  const int64_t fitting = kChunkBytes / a_tile / kRows * kRows;
  const int64_t tiles = smaller(larger(fitting, 4 * kRows), 20 * kRows);
  return {
      .tiles = tiles, .pixels_apart = apart(tiles * s.in_channels), .products_apart = apart(tiles * s.out_channels)};
}

// Writes transformed pixels: [point][tile][channel].
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

void multiply_points(const Forward& a, const Chunk& chunk, int64_t count, const uint16_t* pixels, float* products) {
  const Shape& s = a.shape;
  const auto* weights = static_cast<const uint32_t*>(a.weights);
  for (int64_t point = 0; point < kPoints; ++point) {
    for (int64_t column = 0; column < s.out_channels; column += kPanel) {
      const int64_t columns = smaller(kPanel, s.out_channels - column);
      multiply({.a = reinterpret_cast<const uint32_t*>(pixels + point * chunk.pixels_apart),
                .row_stride = s.in_channels / 2,
                .pair_stride = 1,
                .b = weights,
                .b_stride = columns,
                .vector_stride = kLanes,
                .pairs = s.in_channels / 2,
                .out = products + point * chunk.products_apart + column,
                .out_stride = s.out_channels,
                .accumulate = false},
               count, columns);
      weights += s.in_channels / 2 * columns;
    }
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
  return threads * chunk_of(shape).bytes();
}

void forward(const Forward& a) {
  const Chunk chunk = chunk_of(a.shape);
  const int64_t tiles = a.shape.tiles();
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    auto* const memory = static_cast<uint8_t*>(a.scratch) + thread * chunk.bytes();
    auto* const pixels = reinterpret_cast<uint16_t*>(memory);
    auto* const products = reinterpret_cast<float*>(memory + chunk.pixel_bytes());
    const int64_t end = tiles * (thread + 1) / threads;
    for (int64_t first = tiles * thread / threads; first < end; first += chunk.tiles) {
      const int64_t count = smaller(chunk.tiles, end - first);
      transform_source(a, chunk, first, count, pixels);
      multiply_points(a, chunk, count, pixels, products);
      write_output(a, chunk, first, count, products);
    }
  }
}

}  // namespace trainyard::nn::cpu::winograd_bf16
