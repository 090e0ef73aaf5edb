#include <omp.h>

#include "trainyard/nn/cpu/convolution/pointwise/arguments.h"
#include "trainyard/nn/cpu/convolution/pointwise/panel.h"
#include "trainyard/nn/cpu/simd/cache.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The size of a tile: registers hold its kTilePixels * kPanelBlocks sums, a channel of the weights, and one number in
// all lanes.
constexpr int kTilePixels = kLanes == 16 ? 14 : 6;

// A chunk is so many pixels of an image that their input stays in a core's second-level cache while all outputs are
// made of it, but not so few that reading the weights would take long.
constexpr int64_t kChunkBytes = 256 << 10, kLeastPixels = 56;

// A tile sums over so many blocks of input channels at most, and then over the next ones. With AVX2 the panel's weights
// for 256 channels stay in L1 (16 KiB), and a chunk has more pixels to use them for.
constexpr int64_t kMostSummed = (kLanes == 16 ? 4096 : 256) / kLanes;

int64_t parts_of_sums(int64_t in_blocks) {
  return (in_blocks + kMostSummed - 1) / kMostSummed;
}

int64_t chunk_pixels(const PointwiseShape& s) {
  const int64_t summed = smaller(s.in_channels, kMostSummed * kLanes);
  const int64_t fitting = larger(kChunkBytes / (summed * 4), kLeastPixels);
  const int64_t chunks = (s.pixels + fitting - 1) / fitting, even = (s.pixels + chunks - 1) / larger(chunks, 1);
  return (even + kTilePixels - 1) / kTilePixels * kTilePixels;
}

// What the tiles of one panel have in common.
struct Panel {
  const float* input;             // of the chunk's first pixel, in the first block that is summed over
  int64_t in_blocks, block_step;  // blocks to sum over; elements from one block of the input or the output to the next
  const float* weights;
  bool ahead;     // fetches the pixels behind the tile, which are not in a cache yet
  float* output;  // of the chunk's first pixel, in the panel's first block
  Floats bias[kPanelBlocks];
  bool adds;    // to what `output` holds
  bool limits;  // from 0 to `most`
  float most;
  bool past_caches;
};

template <int pixels, int blocks>
void pointwise_tile(const Panel& s, int64_t pixel) {
  Floats sums[pixels][blocks] = {};
  const float* from = s.input + pixel * kLanes;
  const float* weights = s.weights;
  if (s.adds) {  // what is added to at the end
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) {
#pragma GCC unroll 14
      for (int p = 0; p < pixels; p += 16 / kLanes) {
        _mm_prefetch(s.output + v * s.block_step + (pixel + p) * kLanes, _MM_HINT_T0);
      }
    }
  }
  for (int64_t b = 0; b < s.in_blocks; ++b, from += s.block_step) {
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
#pragma GCC unroll 2
  for (int v = 0; v < blocks; ++v) {
    const Floats bias = s.bias[v];
    float* const to = s.output + v * s.block_step + pixel * kLanes;
#pragma GCC unroll 14
    for (int p = 0; p < pixels; ++p) {
      Floats value = sums[p][v] + bias;
      if (s.adds) value += load(to + p * kLanes);
      if (s.limits) value = at_most(s.most, at_least(0, value));
      s.past_caches ? stream(to + p * kLanes, value) : store(to + p * kLanes, value);
    }
  }
}

// Computes a tile of `count` pixels, 1 to `pixels`.
template <int blocks, int pixels = kTilePixels>
void pointwise_tile_of(int64_t count, const Panel& s, int64_t pixel) {
  if constexpr (pixels > 1) {
    if (count < pixels) return pointwise_tile_of<blocks, pixels - 1>(count, s, pixel);
  }
  pointwise_tile<pixels, blocks>(s, pixel);
}

template <int blocks>
void make_tiles(const Panel& s, int64_t pixels) {
  // Tiles of about the same size: a short one would wait for its own sums.
  const int64_t tiles = (pixels + kTilePixels - 1) / kTilePixels;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = pixels * t / tiles, end = pixels * (t + 1) / tiles;
    pointwise_tile_of<blocks>(end - first, s, first);
  }
}

// Neighbouring pixels of a sample.
struct Chunk {
  int64_t sample, first, pixels;
};

// Makes the outputs of a panel for a chunk, as sums over the input blocks [first, end).
void make_panel(const PointwiseForward& a, const Chunk& chunk, int64_t panel, int64_t first, int64_t end, bool ahead,
                bool past_caches) {
  const PointwiseShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, out_blocks = s.out_channels / kLanes, step = s.pixels * kLanes;
  const int64_t block = panel * kPanelBlocks, blocks = smaller(kPanelBlocks, out_blocks - block);
  Panel made = {.input = a.source + (chunk.sample * in_blocks + first) * step + chunk.first * kLanes,
                .in_blocks = end - first,
                .block_step = step,
                .weights = a.weights + block * kLanes * s.in_channels + first * kLanes * blocks * kLanes,
                .ahead = ahead,
                .output = a.output + (chunk.sample * out_blocks + block) * step + chunk.first * kLanes,
                .bias = {},
                .adds = first > 0 || a.add,
                .limits = a.relu && end == in_blocks,
                .most = a.most,
                .past_caches = past_caches};
  if (a.bias != nullptr && first == 0) {
    for (int64_t v = 0; v < blocks; ++v) {
      made.bias[v] = load_first(a.bias + (block + v) * kLanes, a.bias_count - (block + v) * kLanes);
    }
  }
  blocks == kPanelBlocks ? make_tiles<kPanelBlocks>(made, chunk.pixels) : make_tiles<1>(made, chunk.pixels);
}

}  // namespace

void pointwise_forward(const PointwiseForward& a) {
  const PointwiseShape& s = a.shape;
  const int64_t most = chunk_pixels(s), chunks = (s.pixels + most - 1) / larger(most, 1),
                panels = (s.out_channels / kLanes + kPanelBlocks - 1) / kPanelBlocks;
  const int64_t in_blocks = s.in_channels / kLanes, sums = parts_of_sums(in_blocks);
  const MapShape map{.batch = s.batch, .channels = s.out_channels, .height = s.pixels, .width = 1, .block = kLanes};
  // With AVX2 a tile may begin and end in the middle of a line.
  const bool past_caches = kLanes == 16 && sums == 1 && !a.add && goes_past_caches<float>(map, a.output);
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    // Where images are few, threads share out the panels of a chunk.
    const int64_t whole = s.batch * chunks;
    const int64_t parts = smaller(panels, whole >= 4 * threads ? 1 : (4 * threads + whole - 1) / larger(whole, 1));
    const int64_t tasks = whole * parts;
    for (int64_t task = tasks * thread / threads; task < tasks * (thread + 1) / threads; ++task) {
      const int64_t part = task % parts, first = task / parts % chunks * most;
      const Chunk chunk{.sample = task / parts / chunks, .first = first, .pixels = smaller(most, s.pixels - first)};
      const int64_t begin = panels * part / parts, end = panels * (part + 1) / parts;
      for (int64_t sum = 0; sum < sums; ++sum) {
        const int64_t first_block = in_blocks * sum / sums, end_block = in_blocks * (sum + 1) / sums;
        for (int64_t panel = begin; panel < end; ++panel) {
          make_panel(a, chunk, panel, first_block, end_block, panel == begin, past_caches);
        }
      }
    }
    _mm_sfence();  // of stores past the caches
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
