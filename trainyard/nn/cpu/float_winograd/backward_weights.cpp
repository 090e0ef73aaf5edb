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

constexpr int64_t kUnit = OverTiles::kUnit;

// All threads work on a chunk of tiles at once. This is the memory for it.
struct Share {
  int64_t tiles;
  Layout<kUnit> pixels, gradients;
  [[gnu::always_inline]] int64_t elements() const { return pixels.elements(tiles) + gradients.elements(tiles); }
};

Share share_of(const FloatWinogradShape& s, int threads) {
  Share share = {.pixels = layout_of<kUnit>(s, s.in_channels), .gradients = layout_of<kUnit>(s, s.out_channels)};
  const int64_t least = s.weights_bytes() <= kCachedSums ? kLeastTiles : kMostlySums;
  const int64_t fitting = kShareBytes * threads / (4 * (share.pixels.unit + share.gradients.unit)) * kUnit;
  share.tiles = smaller(larger(least, fitting), s.tiles());
  return share;
}

template <int tile>
void transform(const FloatWinogradBackwardWeights& a, const Share& share, int64_t first, int64_t count, float* pixels,
               float* gradients) {
  const FloatWinogradShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, in_elements = s.in_height * s.in_width * kLanes;
  const int64_t out_blocks = s.out_channels / kLanes, out_elements = s.out_height * s.out_width * kLanes;
  const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
  const int64_t mine = count * thread / threads, tiles = count * (thread + 1) / threads - mine;
  for_tiles<tile>(
      s, first + mine, tiles, in_blocks, [&](const Tile& at, int64_t k, int64_t b) __attribute__((always_inline)) {
        float* const to = share.pixels.block(pixels, mine + k, b);
        transform_pixels<tile, Pixels<tile>>(
            a.source + (at.sample * in_blocks + b) * in_elements, s.in_height, s.in_width, at.row - s.top,
            at.column - s.left, [&](int i, int j, Floats value) __attribute__((always_inline)) {
              store(to + (i * (tile + 2) + j) * Layout<kUnit>::kPoint, value);
            });
      });
  for_tiles<tile>(
      s, first + mine, tiles, out_blocks, [&](const Tile& at, int64_t k, int64_t b) __attribute__((always_inline)) {
        float* const to = share.gradients.block(gradients, mine + k, b);
        transform_pixels<tile, Gradient<tile>>(
            a.output_gradient + (at.sample * out_blocks + b) * out_elements, s.out_height, s.out_width, at.row,
            at.column, [&](int i, int j, Floats value) __attribute__((always_inline)) {
              store(to + (i * (tile + 2) + j) * Layout<kUnit>::kPoint, value);
            });
      });
#pragma omp barrier
}

// Adds a chunk's products to the gradient.
void multiply_points(const FloatWinogradBackwardWeights& a, const Share& share, bool first_chunk, int64_t count,
                     const float* pixels, const float* gradients) {
  const FloatWinogradShape& s = a.shape;
  const int64_t panels = (s.out_channels + kPanel - 1) / kPanel;
#pragma omp for schedule(dynamic)
  for (int64_t task = 0; task < s.points() * panels; ++task) {
    const int64_t point = task / panels, column = task % panels * kPanel;
    for (int64_t tile = 0; tile < count; tile += kTilesDeep) {
      for (int64_t channel = 0; channel < s.in_channels; channel += kGroup) {
        const LeftMatrix left = {.data = pixels + tile / kUnit * share.pixels.unit +
                                         channel / kGroup * share.pixels.group + point * share.pixels.kPoint,
                                 .rows = kRows,
                                 .unit = share.pixels.unit};
        const RightMatrix right = {.data = gradients + tile / kUnit * share.gradients.unit +
                                           column / kGroup * share.gradients.group + point * share.gradients.kPoint,
                                   .step = kGroup,
                                   .group = share.gradients.group,
                                   .unit = share.gradients.unit};
        const Product product = {.data = a.gradient + point * s.point_elements() + channel * s.out_channels + column,
                                 .rows = kRows * s.out_channels,
                                 .row = s.out_channels,
                                 .group = kGroup};
        multiply<OverTiles>(left, right, product, smaller(kGroup, s.in_channels - channel),
                            smaller(kPanel, s.out_channels - column), smaller(kTilesDeep, count - tile),
                            /*accumulate=*/!first_chunk || tile > 0);
      }
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

template <int tile>
void sum_products(const FloatWinogradBackwardWeights& a, const Share& share) {
  float* const pixels = static_cast<float*>(a.scratch);
  float* const gradients = pixels + share.pixels.elements(share.tiles);
  const int64_t tiles = a.shape.tiles();
#pragma omp parallel
  {
    for (int64_t first = 0; first < tiles; first += share.tiles) {
      const int64_t count = smaller(share.tiles, tiles - first);
      transform<tile>(a, share, first, count, pixels, gradients);
      multiply_points(a, share, first == 0, count, pixels, gradients);
    }
    if (a.bias_gradient != nullptr) sum_gradients(a);
  }
}

}  // namespace

void float_winograd_backward_weights(const FloatWinogradBackwardWeights& a) {
  const Share share = share_of(a.shape, a.threads);
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes = share.elements() * 4;
    return;
  }
  a.shape.tile == 4 ? sum_products<4>(a, share) : sum_products<2>(a, share);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
