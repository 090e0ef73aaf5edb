#include <omp.h>

#include "trainyard/nn/cpu/kernels/cache.h"
#include "trainyard/nn/cpu/pointwise/arguments.h"
#include "trainyard/nn/cpu/pointwise/panel.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The size of a tile: registers hold its kTilePixels * kPanelBlocks sums, a channel of the weights, and one number in
// all lanes.
#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kTilePixels = 14;
constexpr int64_t kDepthBlocks = 16;  // that one sweep sums over: a panel of their weights stays in L1
#else
constexpr int kTilePixels = 6;
constexpr int64_t kDepthBlocks = 32;
#endif

// A chunk is so many pixels of an image that their input stays in a core's second-level cache while all outputs are
// made of it, but not so few that reading the weights would take long.
constexpr int64_t kChunkBytes = 256 << 10, kLeastPixels = 56;

int64_t chunk_pixels(const PointwiseShape& s) {
  const int64_t fitting = larger(kChunkBytes / (s.in_channels * 4), kLeastPixels);
  const int64_t chunks = (s.pixels + fitting - 1) / fitting, even = (s.pixels + chunks - 1) / larger(chunks, 1);
  return (even + kTilePixels - 1) / kTilePixels * kTilePixels;
}

// What the tiles of one panel have in common, in one sweep over some of the input channels.
struct Sweep {
  const float* source;         // the first pixel of the chunk in the first of these channels' blocks
  int64_t blocks, block_step;  // of input channels; elements from one to the next
  const float* weights;
  float* sums;       // of the sweeps before this one: [pixel][block of the panel][lane]
  bool first, last;  // sweep
  bool ahead;        // fetches the pixels behind the tile, which are not in a cache yet
  float* output;     // the first pixel of the chunk in the panel's first block
  int64_t output_step;
  Floats bias[kPanelBlocks];
  bool add, relu, past_caches;
};

template <int pixels, int blocks>
[[gnu::always_inline]] inline void finish(const Sweep& s, int64_t pixel, const Floats (&sums)[pixels][blocks]) {
  const bool add = s.add, relu = s.relu, past_caches = s.past_caches;
#pragma GCC unroll 2
  for (int v = 0; v < blocks; ++v) {
    const Floats bias = s.bias[v];
    float* const to = s.output + v * s.output_step + pixel * kLanes;
#pragma GCC unroll 14
    for (int p = 0; p < pixels; ++p) {
      Floats value = sums[p][v] + bias;
      if (add) value += load(to + p * kLanes);
      if (relu) value = at_least(0, value);  // NaN stays
      if (past_caches) {
        stream(to + p * kLanes, value);
      } else {
        store(to + p * kLanes, value);
      }
    }
  }
}

template <int pixels, int blocks>
void pointwise_tile(const Sweep& s, int64_t pixel) {
  Floats sums[pixels][blocks] = {};
  float* const kept = s.sums + pixel * blocks * kLanes;
  if (!s.first) {
#pragma GCC unroll 14
    for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) sums[p][v] = load(kept + (p * blocks + v) * kLanes);
    }
  }
  const float* from = s.source + pixel * kLanes;
  const float* weights = s.weights;
  for (int64_t b = 0; b < s.blocks; ++b, from += s.block_step) {
    if (s.ahead) {
#pragma GCC unroll 14
      for (int p = 0; p < pixels; p += 16 / kLanes) _mm_prefetch(from + (pixels + p) * kLanes, _MM_HINT_T1);
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < kLanes; ++k, weights += blocks * kLanes) {
      Floats line[blocks];
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) line[v] = load(weights + v * kLanes);
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) {
        const Floats value = fill(from[p * kLanes + k]);
#pragma GCC unroll 2
        for (int v = 0; v < blocks; ++v) sums[p][v] = multiply_add(value, line[v], sums[p][v]);
      }
    }
  }
  if (s.last) return finish(s, pixel, sums);
#pragma GCC unroll 14
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) store(kept + (p * blocks + v) * kLanes, sums[p][v]);
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

// Makes the outputs of a panel for a chunk.
void make_panel(const PointwiseForward& a, int64_t sample, int64_t first, int64_t pixels, int64_t panel, bool ahead,
                bool past_caches, float* sums) {
  const PointwiseShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, out_blocks = s.out_channels / kLanes, step = s.pixels * kLanes;
  const int64_t block = panel * kPanelBlocks, blocks = smaller(kPanelBlocks, out_blocks - block);
  const float* const source = a.source + sample * in_blocks * step + first * kLanes;
  const float* const weights = a.weights + block * kLanes * s.in_channels;
  Sweep sweep = {.block_step = step,
                 .sums = sums,
                 .ahead = ahead,
                 .output = a.output + (sample * out_blocks + block) * step + first * kLanes,
                 .output_step = step,
                 .bias = {},
                 .add = a.add,
                 .relu = a.relu,
                 .past_caches = past_caches};
  if (a.bias != nullptr) {
    for (int64_t v = 0; v < blocks; ++v) {
      sweep.bias[v] = load_first(a.bias + (block + v) * kLanes, a.bias_count - (block + v) * kLanes);
    }
  }
  const int64_t sweeps = (in_blocks + kDepthBlocks - 1) / kDepthBlocks;
  for (int64_t i = 0; i < sweeps; ++i) {
    const int64_t from = in_blocks * i / sweeps;
    sweep.source = source + from * step;
    sweep.blocks = in_blocks * (i + 1) / sweeps - from;
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

void pointwise_forward(const PointwiseForward& a) {
  const PointwiseShape& s = a.shape;
  const int64_t chunk = chunk_pixels(s), sums_floats = chunk * kPanelBlocks * kLanes;
  if (a.scratch_bytes != nullptr) {
    *a.scratch_bytes = a.threads * sums_floats * 4;
    return;
  }
  const int64_t chunks = (s.pixels + chunk - 1) / chunk,
                panels = (s.out_channels / kLanes + kPanelBlocks - 1) / kPanelBlocks;
  const MapShape map{.batch = s.batch, .channels = s.out_channels, .height = s.pixels, .width = 1, .block = kLanes};
  const bool past_caches = kLanes == 16 && !a.add && goes_past_caches<float>(map, a.output);
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
        make_panel(a, sample, first, smaller(chunk, s.pixels - first), panel, panel == begin, past_caches, sums);
      }
    }
    _mm_sfence();  // of stores past the caches
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
