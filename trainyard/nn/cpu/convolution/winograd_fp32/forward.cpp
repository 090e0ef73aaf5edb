#include <omp.h>

#include "trainyard/nn/cpu/convolution/epilogue.h"
#include "trainyard/nn/cpu/convolution/winograd_fp32/tile.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Memory of transformed pixels and products, which stays in a core's cache when channels are few. Where they are many,
// the weights do not fit there, and each chunk reads them once more: then it has at least kLeastTiles.
constexpr int64_t kChunkBytes = 400 << 10, kLeastTiles = 8 * kRows, kMostTiles = 20 * kRows;
constexpr int64_t kDepth = 256;  // input channels that one sweep sums over: a panel of their weights stays in L1

// Up to so many tiles, as of a single image's small maps, threads share out the weights instead of the tiles: each
// weight is read by one thread, and for few tiles all that takes time is to read them. Not with AVX-512, where it was
// not measured.
constexpr int64_t kFewTiles = kLanes == 8 ? 4 * kRows : 0;

bool shares_out_weights(const WinogradFp32Shape& s) {
  return s.tiles() <= kFewTiles;
}

// A thread works on its tiles in chunks. This is its memory for one.
struct Chunk {
  int64_t tiles;
  Layout<kRows> pixels, products;
  [[gnu::always_inline]] int64_t bytes() const { return 4 * (pixels.elements(tiles) + products.elements(tiles)); }
};

Chunk chunk_of(const WinogradFp32Shape& s, int threads) {
  Chunk chunk = {.pixels = layout_of<kRows>(s, s.in_channels), .products = layout_of<kRows>(s, s.out_channels)};
  if (shares_out_weights(s)) {
    chunk.tiles = s.tiles();
    return chunk;
  }
  const int64_t fitting = kChunkBytes / (4 * (chunk.pixels.unit + chunk.products.unit)) * kRows;
  const int64_t share = (s.tiles() + threads - 1) / threads;
  chunk.tiles = smaller(smaller(larger(fitting, kLeastTiles), kMostTiles), share);
  return chunk;
}

// Channels, in whole panels but for the last one.
struct Channels {
  int64_t first, end;
};

// The thread's share of so many channels.
Channels share_of(int64_t channels, int64_t thread, int64_t threads) {
  const int64_t panels = (channels + kPanel - 1) / kPanel;
  return {panels * thread / threads * kPanel, smaller(panels * (thread + 1) / threads * kPanel, channels)};
}

template <int tile>
void transform_source(const WinogradFp32Forward& a, const Chunk& chunk, int64_t first, int64_t count,
                      const Channels& in, float* pixels) {
  const WinogradFp32Shape& s = a.shape;
  const int64_t blocks = s.in_channels / kLanes, block_elements = s.in_height * s.in_width * kLanes;
  for_tiles<tile>(
      s, first, count, in.first / kLanes,
      in.end / kLanes, [&](const Tile& at, int64_t k, int64_t b) __attribute__((always_inline)) {
        float* const to = chunk.pixels.block(pixels, k, b);
        transform_pixels<tile, Pixels<tile>>(
            a.source + (at.sample * blocks + b) * block_elements, s.in_height, s.in_width, at.row - s.top,
            at.column - s.left, [&](int i, int j, Floats value) __attribute__((always_inline)) {
              store(to + (i * (tile + 2) + j) * chunk.pixels.kPoint, value);
            });
      });
}

// fetches: the weights that come next are asked for ahead.
void multiply_points(const WinogradFp32Forward& a, const Chunk& chunk, int64_t count, const Channels& out, bool fetches,
                     const float* pixels, float* products) {
  const WinogradFp32Shape& s = a.shape;
  for (int64_t point = 0; point < s.points(); ++point) {
    const float* weights = a.weights + point * s.point_elements() + out.first * s.in_channels;
    for (int64_t column = out.first; column < out.end; column += kPanel) {
      const int64_t columns = smaller(kPanel, out.end - column);
      for (int64_t channel = 0; channel < s.in_channels; channel += kDepth) {
        const int64_t depth = smaller(kDepth, s.in_channels - channel);
        const LeftMatrix left = {.data = pixels + point * chunk.pixels.kPoint + channel / kGroup * chunk.pixels.group,
                                 .rows = chunk.pixels.unit,
                                 .unit = chunk.pixels.group};
        const Product product = {
            .data = products + point * chunk.products.kPoint + column / kGroup * chunk.products.group,
            .rows = chunk.products.unit,
            .row = kGroup,
            .group = chunk.products.group};
        const RightMatrix right = {weights, columns, kGroup, kGroup * columns};
        weights += depth * columns;
        if (fetches && columns == kPanel) {
          const bool last = column + columns >= out.end && channel + depth >= s.in_channels;  // of the point
          multiply_fetching<OverChannels>(
              left, right, product, count, depth, /*accumulate=*/channel > 0,
              last ? weights + s.point_elements() - (out.end - out.first) * s.in_channels : weights);
        } else {
          multiply<OverChannels>(left, right, product, count, columns, depth, /*accumulate=*/channel > 0);
        }
      }
    }
  }
}

template <int tile, bool plain>  // plain: without bias, addition and ReLU
void write_output(const WinogradFp32Forward& a, const Chunk& chunk, int64_t first, int64_t count, const Channels& out,
                  const float* products) {
  const WinogradFp32Shape& s = a.shape;
  const int64_t blocks = s.out_channels / kLanes, block_elements = s.out_height * s.out_width * kLanes;
  for_tiles<tile>(
      s, first, count, out.first / kLanes,
      out.end / kLanes, [&](const Tile& at, int64_t k, int64_t b) __attribute__((always_inline)) {
        const int64_t height = s.out_height - at.row, width = s.out_width - at.column;
        float* const output =
            a.output + (at.sample * blocks + b) * block_elements + (at.row * s.out_width + at.column) * kLanes;
        const float* const from = chunk.products.block(products, k, b);
        const Floats bias =
            plain || a.bias == nullptr ? Floats{} : load_first(a.bias + b * kLanes, a.bias_count - b * kLanes);
        const auto read = [&](int i, int j) __attribute__((always_inline)) {
          return load(from + (i * (tile + 2) + j) * chunk.products.kPoint);
        };
        const auto finish = [&](int i, int j, Floats value) __attribute__((always_inline)) {
          float* const to = output + (i * s.out_width + j) * kLanes;
          store(to, plain ? value : epilogue(a, value + bias, to));
        };
        if (height >= tile && width >= tile) {
          transform_square<Products<tile>>(read, finish);
        } else {
          transform_square<Products<tile>>(
              read, [&](int i, int j, Floats value) __attribute__((always_inline)) {
                if (i < height && j < width) finish(i, j, value);
              });
        }
      });
}

template <int tile>
void convolve(const WinogradFp32Forward& a, const Chunk& chunk) {
  const bool plain = a.bias == nullptr && !a.add && !a.relu;
  const auto write = plain ? write_output<tile, true> : write_output<tile, false>;
  const int64_t tiles = a.shape.tiles();
  const Channels in = {0, a.shape.in_channels}, out = {0, a.shape.out_channels};
  if (shares_out_weights(a.shape)) {
    float* const pixels = static_cast<float*>(a.scratch);
    float* const products = pixels + chunk.pixels.elements(tiles);
#pragma omp parallel
    {
      const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
      transform_source<tile>(a, chunk, 0, tiles, share_of(in.end, thread, threads), pixels);
#pragma omp barrier
      const Channels mine = share_of(out.end, thread, threads);
      multiply_points(a, chunk, tiles, mine, /*fetches=*/true, pixels, products);
      write(a, chunk, 0, tiles, mine, products);
    }
    return;
  }
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    float* const pixels = static_cast<float*>(a.scratch) + thread * thread_stride(chunk.bytes()) / 4;
    float* const products = pixels + chunk.pixels.elements(chunk.tiles);
    const int64_t end = tiles * (thread + 1) / threads;
    for (int64_t first = tiles * thread / threads; first < end; first += chunk.tiles) {
      const int64_t count = smaller(chunk.tiles, end - first);
      transform_source<tile>(a, chunk, first, count, in, pixels);
      multiply_points(a, chunk, count, out, /*fetches=*/false, pixels, products);
      write(a, chunk, first, count, out, products);
    }
  }
}

}  // namespace

void winograd_fp32_forward(const WinogradFp32Forward& a) {
  const Chunk chunk = chunk_of(a.shape, a.threads);
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes = thread_scratch_bytes(chunk.bytes(), shares_out_weights(a.shape) ? 1 : a.threads);
    return;
  }
  a.shape.tile == 4 ? convolve<4>(a, chunk) : convolve<2>(a, chunk);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
