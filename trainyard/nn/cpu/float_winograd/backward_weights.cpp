#include <omp.h>

#include "trainyard/nn/cpu/float_winograd/tile.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// A thread's share of transformed pixels and gradients stays in its cache where the sums do as well. Where they do not,
// each chunk reads and writes them once more: then it has at least kMostlySums tiles.
constexpr int64_t kShareBytes = 1 << 20, kCachedSums = 1 << 20, kLeastTiles = 48, kMostlySums = 192;
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int64_t kTilesDeep = 96;  // that one sweep sums over: a panel of their gradients stays in L1
#else
constexpr int64_t kTilesDeep = 192;
#endif

// All threads work on a chunk of tiles at once.
struct Share {
  int64_t tiles, pixels_apart, gradients_apart;  // apart: elements between points
  [[gnu::always_inline]] int64_t bytes() const { return kPoints * (pixels_apart + gradients_apart) * 4; }
};

Share share_of(const FloatWinogradShape& s, int threads) {
  const int64_t a_tile = kPoints * 4 * (s.in_channels + s.out_channels);
  const int64_t least = s.weights_bytes() <= kCachedSums ? kLeastTiles : kMostlySums;
  const int64_t tiles = smaller(larger(least, kShareBytes * threads / a_tile), s.tiles());
  return {.tiles = tiles, .pixels_apart = apart(tiles, s.in_channels), .gradients_apart = apart(tiles, s.out_channels)};
}

// Writes the transformed pixels and gradients: [point][tile][channel].
void transform(const FloatWinogradBackwardWeights& a, const Share& share, int64_t first, int64_t count, float* pixels,
               float* gradients) {
  const FloatWinogradShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, in_elements = s.in_height * s.in_width * kLanes;
  const int64_t out_blocks = s.out_channels / kLanes, out_elements = s.out_height * s.out_width * kLanes;
  const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
  const int64_t mine = count * thread / threads, tiles = count * (thread + 1) / threads - mine;
  for_tiles(
      tiles, in_blocks, [&](int64_t t, int64_t b) __attribute__((always_inline)) {
        const Tile tile = tile_at(s, first + mine + t);
        Floats d[kSide][kSide], transformed[kSide][kSide];
        load_square(a.source + (tile.sample * in_blocks + b) * in_elements, s.in_height, s.in_width, tile.row - s.top,
                    tile.column - s.left, d);
        transform_square(transform_pixels, d, transformed);
        float* const to = pixels + (mine + t) * row_of(s.in_channels) + b * kLanes;
        for (int point = 0; point < kPoints; ++point) {
          store(to + point * share.pixels_apart, transformed[point / kSide][point % kSide]);
        }
      });
  for_tiles(
      tiles, out_blocks, [&](int64_t t, int64_t b) __attribute__((always_inline)) {
        const Tile tile = tile_at(s, first + mine + t);
        Floats y[kTile][kTile], transformed[kSide][kSide];
        load_square(a.output_gradient + (tile.sample * out_blocks + b) * out_elements, s.out_height, s.out_width,
                    tile.row, tile.column, y);
        transform_square(transform_gradient, y, transformed);
        float* const to = gradients + (mine + t) * row_of(s.out_channels) + b * kLanes;
        for (int point = 0; point < kPoints; ++point) {
          store(to + point * share.gradients_apart, transformed[point / kSide][point % kSide]);
        }
      });
#pragma omp barrier
}

// Adds a chunk's products to the gradient.
void multiply_points(const FloatWinogradBackwardWeights& a, const Share& share, bool first_chunk, int64_t count,
                     const float* pixels, const float* gradients) {
  const FloatWinogradShape& s = a.shape;
  const int64_t panels = (s.out_channels + kPanel - 1) / kPanel;
#pragma omp for schedule(dynamic)
  for (int64_t task = 0; task < kPoints * panels; ++task) {
    const int64_t point = task / panels, column = task % panels * kPanel;
    for (int64_t tile = 0; tile < count; tile += kTilesDeep) {
      multiply({pixels + point * share.pixels_apart + tile * row_of(s.in_channels), 1, row_of(s.in_channels)},
               gradients + point * share.gradients_apart + tile * row_of(s.out_channels) + column,
               row_of(s.out_channels), a.gradient + point * s.in_channels * s.out_channels + column, s.out_channels,
               s.in_channels, smaller(kPanel, s.out_channels - column), smaller(kTilesDeep, count - tile),
               /*accumulate=*/!first_chunk || tile > 0);
    }
  }
}

void sum_gradients(const FloatWinogradBackwardWeights& a) {
  const FloatWinogradShape& s = a.shape;
  const int64_t blocks = s.out_channels / kLanes, pixels = s.out_height * s.out_width;
#pragma omp for schedule(static)
  for (int64_t b = 0; b < blocks; ++b) {
    double sums[kLanes] = {};
    for (int64_t n = 0; n < s.batch; ++n) {
      const float* from = a.output_gradient + (n * blocks + b) * pixels * kLanes;
      for (int64_t row = 0; row < s.out_height; ++row) {
        Floats sum = {};
        for (int64_t column = 0; column < s.out_width; ++column, from += kLanes) sum += load(from);
        float lanes[kLanes];
        store(lanes, sum);
        for (int64_t c = 0; c < kLanes; ++c) sums[c] += static_cast<double>(lanes[c]);
      }
    }
    for (int64_t c = 0; c < smaller(kLanes, a.bias_count - b * kLanes); ++c) {
      a.bias_gradient[b * kLanes + c] = static_cast<float>(sums[c]);
    }
  }
}

}  // namespace

void float_winograd_backward_weights(const FloatWinogradBackwardWeights& a) {
  const Share share = share_of(a.shape, a.threads);
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes = share.bytes();
    return;
  }
  float* const pixels = static_cast<float*>(a.scratch);
  float* const gradients = pixels + kPoints * share.pixels_apart;
  const int64_t tiles = a.shape.tiles();
#pragma omp parallel
  {
    for (int64_t first = 0; first < tiles; first += share.tiles) {
      const int64_t count = smaller(share.tiles, tiles - first);
      transform(a, share, first, count, pixels, gradients);
      multiply_points(a, share, first == 0, count, pixels, gradients);
    }
    if (a.bias_gradient != nullptr) sum_gradients(a);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
