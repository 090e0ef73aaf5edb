#include <omp.h>

#include "trainyard/nn/cpu/pointwise/arguments.h"
#include "trainyard/nn/cpu/pointwise/panel.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The size of a tile: registers hold its kTilePixels * kPanelBlocks sums, a channel of the weights, and one number in
// all lanes.
constexpr int kTilePixels = 6;
constexpr int64_t kDepthBlocks = 32;  // that one sweep sums over: a panel of their weights stays in L1

// A chunk is so many pixels of an image that their output gradient stays in a core's second-level cache while the
// gradients of all inputs are made of it, but not so few that reading the weights would take long.
constexpr int64_t kChunkBytes = 256 << 10, kLeastPixels = 56;

int64_t chunk_pixels(const PointwiseShape& s) {
  const int64_t fitting = larger(kChunkBytes / (s.out_channels * 4), kLeastPixels);
  const int64_t chunks = (s.pixels + fitting - 1) / fitting, even = (s.pixels + chunks - 1) / larger(chunks, 1);
  return (even + kTilePixels - 1) / kTilePixels * kTilePixels;
}

// What the tiles of one panel have in common, in one sweep over some of the output channels.
struct Sweep {
  const float* from;           // the output gradient of the chunk's first pixel, in the first of these channels' blocks
  int64_t blocks, block_step;  // of output channels; elements from one to the next
  const float* weights;
  float* sums;       // of the sweeps before this one: [pixel][block of the panel][lane]
  bool first, last;  // sweep
  bool ahead;        // fetches the pixels behind the tile, which are not in a cache yet
  float* to;         // the input gradient of the chunk's first pixel, in the panel's first block
  int64_t to_step;   // elements from one of its blocks to the next
};

template <int pixels, int blocks>
void pointwise_tile(const Sweep& s, int64_t pixel) {
  Floats sums[pixels][blocks] = {};
  float* const kept = s.sums + pixel * blocks * kLanes;
  if (!s.first) {
#pragma GCC unroll 6
    for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) sums[p][v] = load(kept + (p * blocks + v) * kLanes);
    }
  }
  const float* from = s.from + pixel * kLanes;
  const float* weights = s.weights;
  for (int64_t b = 0; b < s.blocks; ++b, from += s.block_step) {
    if (s.ahead) {
#pragma GCC unroll 6
      for (int p = 0; p < pixels; p += 16 / kLanes) _mm_prefetch(from + (pixels + p) * kLanes, _MM_HINT_T1);
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < kLanes; ++k, weights += blocks * kLanes) {
      Floats line[blocks];
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) line[v] = load(weights + v * kLanes);
#pragma GCC unroll 6
      for (int p = 0; p < pixels; ++p) {
        const Floats value = fill(from[p * kLanes + k]);
#pragma GCC unroll 2
        for (int v = 0; v < blocks; ++v) sums[p][v] = multiply_add(value, line[v], sums[p][v]);
      }
    }
  }
  // Where both go is chosen here, so that the loop has one form.
  float* const to = s.last ? s.to + pixel * kLanes : kept;
  const int64_t pixel_step = s.last ? kLanes : blocks * kLanes, block_step = s.last ? s.to_step : kLanes;
#pragma GCC unroll 6
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) store(to + p * pixel_step + v * block_step, sums[p][v]);
  }
}

// Computes a tile of `count` pixels, 1 to `pixels`.
template <int blocks, int pixels = kTilePixels>
void pointwise_tile_of(int64_t count, const Sweep& s, int64_t pixel) {
  if constexpr (pixels > 1) {
    if (count < pixels) return pointwise_tile_of<blocks, pixels - 1>(count, s, pixel);
  }
  pointwise_tile<pixels, blocks>(s, pixel);
}

template <int blocks>
void sweep_tiles(const Sweep& s, int64_t pixels) {
  // Tiles of about the same size: a short one would wait for its own sums.
  const int64_t tiles = (pixels + kTilePixels - 1) / kTilePixels;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = pixels * t / tiles, end = pixels * (t + 1) / tiles;
    pointwise_tile_of<blocks>(end - first, s, first);
  }
}

// Makes the input gradients of a panel for a chunk.
void make_panel(const PointwiseBackwardData& a, int64_t sample, int64_t first, int64_t pixels, int64_t panel,
                bool ahead, float* sums) {
  const PointwiseShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, out_blocks = s.out_channels / kLanes, step = s.pixels * kLanes;
  const int64_t block = panel * kPanelBlocks, blocks = smaller(kPanelBlocks, in_blocks - block);
  const float* const gradient = a.output_gradient + sample * out_blocks * step + first * kLanes;
  const float* const weights = a.weights + block * kLanes * s.out_channels;
  Sweep sweep = {.block_step = step,
                 .sums = sums,
                 .ahead = ahead,
                 .to = a.input_gradient + (sample * in_blocks + block) * step + first * kLanes,
                 .to_step = step};
  const int64_t sweeps = (out_blocks + kDepthBlocks - 1) / kDepthBlocks;
  for (int64_t i = 0; i < sweeps; ++i) {
    const int64_t from = out_blocks * i / sweeps;
    sweep.from = gradient + from * step;
    sweep.blocks = out_blocks * (i + 1) / sweeps - from;
    sweep.weights = weights + from * kLanes * blocks * kLanes;
    sweep.first = i == 0;
    sweep.last = i + 1 == sweeps;
    if (blocks == kPanelBlocks) {
      sweep_tiles<kPanelBlocks>(sweep, pixels);
    } else {
      sweep_tiles<1>(sweep, pixels);
    }
  }
}

}  // namespace

void pointwise_backward_data(const PointwiseBackwardData& a) {
  const PointwiseShape& s = a.shape;
  const int64_t chunk = chunk_pixels(s), sums_floats = chunk * kPanelBlocks * kLanes;
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes = a.threads * sums_floats * 4;
    return;
  }
  const int64_t chunks = (s.pixels + chunk - 1) / chunk,
                panels = (s.in_channels / kLanes + kPanelBlocks - 1) / kPanelBlocks;
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    float* const sums = static_cast<float*>(a.scratch) + thread * sums_floats;
    // Where images are few, threads share out the panels of a chunk.
    const int64_t whole = s.batch * chunks;
    const int64_t parts = smaller(panels, whole >= 4 * threads ? 1 : (4 * threads + whole - 1) / larger(whole, 1));
    const int64_t tasks = whole * parts;
    for (int64_t task = tasks * thread / threads; task < tasks * (thread + 1) / threads; ++task) {
      const int64_t part = task % parts, sample = task / parts / chunks, first = task / parts % chunks * chunk;
      const int64_t begin = panels * part / parts, end = panels * (part + 1) / parts;
      for (int64_t panel = begin; panel < end; ++panel) {
        make_panel(a, sample, first, smaller(chunk, s.pixels - first), panel, panel == begin, sums);
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
