#include <omp.h>

#include "trainyard/nn/cpu/convolution/epilogue.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/multiply.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/transforms.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {

constexpr int64_t kChunkBytes = 640 << 10;  // of transformed pixels and products: they stay in a core's cache

// A thread works on its tiles in chunks. This is its memory for one.
struct Chunk {
  int64_t tiles, points, pixels_apart, products_apart;  // apart: elements between points
  [[gnu::always_inline]] int64_t pixel_bytes() const { return points * pixels_apart * 2; }
  [[gnu::always_inline]] int64_t bytes() const { return pixel_bytes() + points * products_apart * 4; }
};

// Returns whether threads share out the weights instead of the tiles: where tiles are so few that all threads together
// move less of them from core to core than one thread reads of weights.
bool shares_out_weights(const Shape& s, int64_t threads) {
  const int64_t moved = s.tiles() * s.points() * (2 * s.in_channels + 4 * s.out_channels);
  return threads > 1 && 4 * moved <= weights_bytes(s);
}

Chunk chunk_of(const Shape& s, int64_t threads) {
  int64_t tiles = s.tiles();
  if (!shares_out_weights(s, threads)) {
    const int64_t a_tile = s.points() * (2 * s.in_channels + 4 * s.out_channels);
    tiles = smaller(larger(kChunkBytes / a_tile / kRows * kRows, 4 * kRows), 20 * kRows);
  }
  return {.tiles = tiles,
          .points = s.points(),
          .pixels_apart = apart(tiles * s.in_channels),
          .products_apart = apart(tiles * s.out_channels)};
}

// Writes transformed pixels of the tiles [first, first + count) into a chunk: [point][tile][channel].
template <int tile_size>
void transform_source(const Forward& a, const Chunk& chunk, int64_t first, int64_t count, uint16_t* pixels) {
  constexpr int kSide = tile_size + 2;
  const Shape& s = a.shape;
  const int64_t blocks = s.in_channels / kLanes, block_elements = s.in_height * s.in_width * kLanes;
  Tile tile = tile_at(s, first);
  for (int64_t t = 0; t < count; ++t, advance(s, tile)) {
    const uint16_t* block = static_cast<const uint16_t*>(a.source) + tile.sample * blocks * block_elements;
    for (int64_t b = 0; b < blocks; ++b, block += block_elements) {
      Floats d[kSide][kSide], u[kSide][kSide];
      load_rows<0, kSide>(block, s.in_height, s.in_width, tile.row - s.top, tile.column - s.left, d);
      transform_pixels<tile_size, 0, kSide>(d, u);
      uint16_t* const to = pixels + t * s.in_channels + b * kLanes;
      unrolled<kSide * kSide>([&]<int point>() __attribute__((always_inline)) {
        store_bfloats(to + point * chunk.pixels_apart, u[point / kSide][point % kSide]);
      });
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

template <int tile_size>
void write_output(const Forward& a, const Chunk& chunk, int64_t first, int64_t count, const float* products) {
  constexpr int kSide = tile_size + 2;
  const Shape& s = a.shape;
  const int64_t blocks = s.out_channels / kLanes, block_elements = s.out_height * s.out_width * kLanes;
  Tile tile = tile_at(s, first);
  for (int64_t t = 0; t < count; ++t, advance(s, tile)) {
    const int64_t height = smaller(tile_size, s.out_height - tile.row),
                  width = smaller(tile_size, s.out_width - tile.column);
    uint16_t* block = static_cast<uint16_t*>(a.output) + tile.sample * blocks * block_elements +
                      (tile.row * s.out_width + tile.column) * kLanes;
    for (int64_t b = 0; b < blocks; ++b, block += block_elements) {
      const float* const from = products + t * s.out_channels + b * kLanes;
      Floats m[kSide][kSide], y[tile_size][tile_size];
      unrolled<kSide * kSide>([&]<int point>() __attribute__((always_inline)) {
        m[point / kSide][point % kSide] = _mm512_loadu_ps(from + point * chunk.products_apart);
      });
      transform_products<tile_size>(m, y);
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

template <int tile>
void run(const Forward& a) {
  const bool shares = shares_out_weights(a.shape, a.threads);
  const Chunk chunk = chunk_of(a.shape, a.threads);
  const int64_t tiles = a.shape.tiles(), all_panels = a.shape.points() * panels_of(a.shape);
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    auto* const memory = static_cast<uint8_t*>(a.scratch) + (shares ? 0 : thread * thread_stride(chunk.bytes()));
    auto* const pixels = reinterpret_cast<uint16_t*>(memory);
    auto* const products = reinterpret_cast<float*>(memory + chunk.pixel_bytes());
    const int64_t begin = tiles * thread / threads, end = tiles * (thread + 1) / threads;
    if (shares) {
      transform_source<tile>(a, chunk, begin, end - begin, pixels + begin * a.shape.in_channels);
#pragma omp barrier
      multiply_panels(a, chunk, tiles, pixels, products, all_panels * thread / threads,
                      all_panels * (thread + 1) / threads);
#pragma omp barrier
      write_output<tile>(a, chunk, begin, end - begin, products + begin * a.shape.out_channels);
    } else {
      for (int64_t first = begin; first < end; first += chunk.tiles) {
        const int64_t count = smaller(chunk.tiles, end - first);
        transform_source<tile>(a, chunk, first, count, pixels);
        multiply_panels(a, chunk, count, pixels, products, 0, all_panels);
        write_output<tile>(a, chunk, first, count, products);
      }
    }
  }
}
}  // namespace

int64_t forward_scratch_bytes(const Shape& shape, int threads) {
  return thread_scratch_bytes(chunk_of(shape, threads).bytes(), shares_out_weights(shape, threads) ? 1 : threads);
}

void forward(const Forward& a) {
  with_tile(a.shape.tile, [&]<int tile>() { run<tile>(a); });
}

}  // namespace trainyard::nn::cpu::winograd_bf16
