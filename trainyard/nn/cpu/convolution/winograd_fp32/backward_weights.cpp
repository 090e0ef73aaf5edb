#include <omp.h>

#include "trainyard/nn/cpu/convolution/bias_gradient.h"
#include "trainyard/nn/cpu/convolution/winograd_fp32/tile.h"

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
// Where sums are few and tiles many, threads need not wait for each other, nor read what another one has transformed:
// that took half of the time with two threads. The sums of all parts take kPartsBytes at most.
constexpr int64_t kMostParts = 32, kLeastParts = 8, kPartsBytes = 5 << 20, kPartTiles = 32;

// Returns how many parts of the tiles are summed over by one thread each; 1: all threads work on each chunk. It depends
// on the shape only, and so does the order of sums.
int64_t parts_of(const WinogradFp32Shape& s) {
  int64_t parts = kMostParts;
  while (parts > 1 && (parts * s.weights_bytes() > kPartsBytes || s.tiles() < parts * kPartTiles)) parts /= 2;
  return parts < kLeastParts ? 1 : parts;
}

// The memory for a chunk of tiles.
struct Share {
  int64_t tiles;
  Layout<kUnit> pixels, gradients;
  [[gnu::always_inline]] int64_t bytes() const { return 4 * (pixels.elements(tiles) + gradients.elements(tiles)); }
};

Share share_of(const WinogradFp32Shape& s, int threads) {
  Share share = {.pixels = layout_of<kUnit>(s, s.in_channels), .gradients = layout_of<kUnit>(s, s.out_channels)};
  const int64_t least = s.weights_bytes() <= kCachedSums ? kLeastTiles : kMostlySums;
  const int64_t fitting = kShareBytes * threads / (4 * (share.pixels.unit + share.gradients.unit)) * kUnit;
  share.tiles = smaller(larger(least, fitting), s.tiles());
  return share;
}

template <int tile>
void transform(const WinogradFp32BackwardWeights& a, const Share& share, int64_t first, int64_t mine, int64_t tiles,
               float* pixels, float* gradients) {
  const WinogradFp32Shape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, in_elements = s.in_height * s.in_width * kLanes;
  const int64_t out_blocks = s.out_channels / kLanes, out_elements = s.out_height * s.out_width * kLanes;
  for_tiles<tile>(
      s, first + mine, tiles, 0, in_blocks, [&](const Tile& at, int64_t k, int64_t b) __attribute__((always_inline)) {
        float* const to = share.pixels.block(pixels, mine + k, b);
        transform_pixels<tile, Pixels<tile>>(
            a.source + (at.sample * in_blocks + b) * in_elements, s.in_height, s.in_width, at.row - s.top,
            at.column - s.left, [&](int i, int j, Floats value) __attribute__((always_inline)) {
              store(to + (i * (tile + 2) + j) * Layout<kUnit>::kPoint, value);
            });
      });
  for_tiles<tile>(
      s, first + mine, tiles, 0, out_blocks, [&](const Tile& at, int64_t k, int64_t b) __attribute__((always_inline)) {
        float* const to = share.gradients.block(gradients, mine + k, b);
        transform_pixels<tile, Gradient<tile>>(
            a.output_gradient + (at.sample * out_blocks + b) * out_elements, s.out_height, s.out_width, at.row,
            at.column, [&](int i, int j, Floats value) __attribute__((always_inline)) {
              store(to + (i * (tile + 2) + j) * Layout<kUnit>::kPoint, value);
            });
      });
}

// Adds a chunk's products of one point and one panel of columns to `sums`, which lie as the gradient.
void multiply_point(const WinogradFp32Shape& s, const Share& share, int64_t task, bool accumulate, int64_t count,
                    const float* pixels, const float* gradients, float* sums) {
  const int64_t panels = (s.out_channels + kPanel - 1) / kPanel;
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
      const Product product = {.data = sums + point * s.point_elements() + channel * s.out_channels + column,
                               .rows = kRows * s.out_channels,
                               .row = s.out_channels,
                               .group = kGroup};
      multiply<OverTiles>(left, right, product, smaller(kGroup, s.in_channels - channel),
                          smaller(kPanel, s.out_channels - column), smaller(kTilesDeep, count - tile),
                          accumulate || tile > 0);
    }
  }
}

void sum_bias_gradients(const WinogradFp32BackwardWeights& a) {
  if (a.bias_gradient == nullptr) return;
  sum_bias_gradients<4, float>({.batch = a.shape.batch,
                                .blocks = a.shape.out_channels / kLanes,
                                .pixels = a.shape.out_height * a.shape.out_width,
                                .together = 192,
                                .gradient = a.output_gradient,
                                .sums = a.bias_gradient,
                                .count = a.bias_count});
}

// All threads work on each chunk: on their tiles, and then on their points.
template <int tile>
void sum_together(const WinogradFp32BackwardWeights& a, const Share& share) {
  const WinogradFp32Shape& s = a.shape;
  float* const pixels = static_cast<float*>(a.scratch);
  float* const gradients = pixels + share.pixels.elements(share.tiles);
  const int64_t tiles = s.tiles(), panels = (s.out_channels + kPanel - 1) / kPanel;
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    for (int64_t first = 0; first < tiles; first += share.tiles) {
      const int64_t count = smaller(share.tiles, tiles - first), begin = count * thread / threads;
      transform<tile>(a, share, first, begin, count * (thread + 1) / threads - begin, pixels, gradients);
#pragma omp barrier
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < s.points() * panels; ++task) {
        multiply_point(s, share, task, first > 0, count, pixels, gradients, a.gradient);
      }
    }
    sum_bias_gradients(a);
  }
}

// Each thread sums over parts of the tiles by itself. The parts do not depend on the number of threads.
template <int tile>
void sum_parts(const WinogradFp32BackwardWeights& a, const Share& share, int64_t parts) {
  const WinogradFp32Shape& s = a.shape;
  const int64_t tiles = s.tiles(), panels = (s.out_channels + kPanel - 1) / kPanel;
  const int64_t elements = s.points() * s.point_elements();
  auto* const scratch = static_cast<float*>(a.scratch);
  float* const sums = scratch + thread_scratch_bytes(share.bytes(), a.threads) / 4;
#pragma omp parallel
  {
    float* const pixels = scratch + omp_get_thread_num() * thread_stride(share.bytes()) / 4;
    float* const gradients = pixels + share.pixels.elements(share.tiles);
#pragma omp for schedule(static)
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = tiles * part / parts, end = tiles * (part + 1) / parts;
      for (int64_t first = begin; first < end; first += share.tiles) {
        const int64_t count = smaller(share.tiles, end - first);
        transform<tile>(a, share, first, 0, count, pixels, gradients);
        for (int64_t task = 0; task < s.points() * panels; ++task) {
          multiply_point(s, share, task, first > begin, count, pixels, gradients, sums + part * elements);
        }
      }
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < elements; i += kLanes) {
      Floats sum = load(sums + i);
      for (int64_t part = 1; part < parts; ++part) sum += load(sums + part * elements + i);
      store(a.gradient + i, sum);
    }
    sum_bias_gradients(a);
  }
}

}  // namespace

void winograd_fp32_backward_weights(const WinogradFp32BackwardWeights& a) {
  const int64_t parts = parts_of(a.shape);
  const Share share = share_of(a.shape, parts > 1 ? 1 : a.threads);
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes =
        parts > 1 ? thread_scratch_bytes(share.bytes(), a.threads) + parts * a.shape.weights_bytes() : share.bytes();
    return;
  }
  if (a.shape.tile == 4) return parts > 1 ? sum_parts<4>(a, share, parts) : sum_together<4>(a, share);
  return parts > 1 ? sum_parts<2>(a, share, parts) : sum_together<2>(a, share);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
