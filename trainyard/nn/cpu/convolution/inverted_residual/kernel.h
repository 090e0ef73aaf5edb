// The kernel for maps of type T, with AVX-512: Products<T> multiplies. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include <omp.h>

#include "trainyard/nn/cpu/convolution/inverted_residual/arguments.h"
#include "trainyard/nn/cpu/simd/products.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kPanelBlocks = 2;
// The sizes of tiles: registers hold the sums of a 1x1 convolution, kTilePixels * kPanelBlocks, a channel of its
// weights and one number in all lanes; or the sums of kRowPixels neighbours of a depthwise one and its nine weights.
constexpr int kTilePixels = 14, kRowPixels = 7;
constexpr int64_t kTaps = 9;

// Adds products of the channels of `pixels` neighbours, the first at `from`. Pads behind the channels are multiplied
// up to a multiple of kSummed.
constexpr int64_t kSummed = 8;
template <typename T, int pixels, int blocks>
[[gnu::always_inline]] inline void add_products(const T* from, int64_t channels, int64_t block_step, const T* weights,
                                                Floats (&sums)[pixels][blocks]) {
  using P = Products<T>;
  for (int64_t left = channels; left > 0; left -= kLanes, from += block_step) {
    for (int p = 0; p < pixels; p += 64 / (kLanes * static_cast<int>(sizeof(T)))) {
      _mm_prefetch(from + block_step + p * kLanes, _MM_HINT_T0);
    }
    for (int64_t first = 0; first < smaller(kLanes, left); first += kSummed) {
#pragma GCC unroll 8
      for (int64_t k = first; k < first + kSummed; k += P::kStep, weights += blocks * kLanes * P::kStep) {
        typename P::Weights line[blocks];
#pragma GCC unroll 2
        for (int v = 0; v < blocks; ++v) line[v] = P::weights(weights + v * kLanes * P::kStep);
#pragma GCC unroll 14
        for (int p = 0; p < pixels; ++p) {
          const auto value = P::value(from + p * kLanes + k);
#pragma GCC unroll 2
          for (int v = 0; v < blocks; ++v) sums[p][v] = P::add(value, line[v], sums[p][v]);
        }
      }
    }
  }
}

// The least and the largest value of what is stored.
struct Bounds {
  explicit Bounds(const InvertedResidualShape::Limits& limits) : least(fill(limits.least)), most(fill(limits.most)) {}
  [[gnu::always_inline]] Floats of(Floats value) const {  // NaN stays
    return _mm512_min_ps(most, _mm512_max_ps(least, value));
  }
  Floats least, most;
};

// Some rows of two blocks of the expanded map, with the zeros that the 3x3 windows meet around them. Row r is at
// r % rows.
struct Ring {
  float* data;
  int64_t rows, pitch, plane;  // elements from row to row, and from block to block
  const float* zeros;          // a row
  [[gnu::always_inline]] const float* row(int64_t r) const { return data + r % rows * pitch; }
};

// What the tiles of one panel have in common.
template <typename T>
struct Panel {
  const T* input;                // of pixel 0
  int64_t in_channels, in_step;  // in_step: elements from one block to the next
  const T* weights;
  const float* bias;
  int64_t channels;  // of the panel, without pads
};

template <typename T, int pixels, int blocks>
[[gnu::always_inline]] inline void sum_tile(const Panel<T>& s, int64_t pixel, Floats (&sums)[pixels][blocks]) {
#pragma GCC unroll 2
  for (int v = 0; v < blocks; ++v) {
    const Floats bias = load(s.bias + v * kLanes);
#pragma GCC unroll 14
    for (int p = 0; p < pixels; ++p) sums[p][v] = bias;
  }
  add_products<T, pixels, blocks>(s.input + pixel * kLanes, s.in_channels, s.in_step, s.weights, sums);
}

[[gnu::always_inline]] inline Bits lanes_of(int64_t channels) {
  return static_cast<Bits>((1U << smaller(channels, kLanes)) - 1);
}

template <typename T>
struct Expansion : Panel<T> {
  Ring ring;
  int64_t width, left;
  Bounds bounds;

  template <int pixels, int blocks>
  void tile(int64_t pixel) const {
    Floats sums[pixels][blocks];
    sum_tile<T, pixels, blocks>(*this, pixel, sums);
    int64_t row = pixel / width, column = pixel % width;
    float* to = ring.data + row % ring.rows * ring.pitch + (left + column) * kLanes;
    const bool pads = this->channels < blocks * kLanes;
#pragma GCC unroll 14
    for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
      for (int v = 0; v < blocks; ++v) {
        Floats value = bounds.of(sums[p][v]);
        // Pad lanes are sums with zero weights: NaN where an input is infinite.
        if (pads) [[unlikely]]
          value = keep(value, lanes_of(this->channels - v * kLanes));
        store(to + v * ring.plane, value);
      }
      to += kLanes;
      if (++column == width) {
        column = 0;
        to = ring.data + ++row % ring.rows * ring.pitch + left * kLanes;
      }
    }
  }
};

template <typename T>
struct Projection : Panel<T> {
  const T* residual;  // of pixel 0 in the panel's first block; or null
  T* output;
  int64_t out_step;
  Bounds bounds;

  template <int pixels, int blocks>
  void tile(int64_t pixel) const {
    Floats sums[pixels][blocks];
    sum_tile<T, pixels, blocks>(*this, pixel, sums);
#pragma GCC unroll 2
    for (int v = 0; v < blocks; ++v) {
      const int64_t at = v * out_step + pixel * kLanes;
      const Bits lanes = lanes_of(this->channels - v * kLanes);
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) {
        Floats value = sums[p][v];
        if (residual != nullptr) value += load(residual + at + p * kLanes);
        store(output + at + p * kLanes, keep(bounds.of(value), lanes));
      }
    }
  }
};

// Computes a tile of `count` pixels, 1 to `pixels`.
template <int blocks, int pixels = kTilePixels, typename Kind>
void tile_of(const Kind& kind, int64_t count, int64_t pixel) {
  if constexpr (pixels > 1) {
    if (count < pixels) return tile_of<blocks, pixels - 1>(kind, count, pixel);
  }
  kind.template tile<pixels, blocks>(pixel);
}

constexpr int64_t tiles_of(int64_t pixels) {
  return (pixels + kTilePixels - 1) / kTilePixels;
}

// Computes the tiles [begin, end) of those that `pixels` pixels are divided into. They have about the same size: a
// short one would wait for its own sums.
template <typename Kind>
void make_tiles(const Kind& kind, int64_t first, int64_t pixels, int64_t begin, int64_t end) {
  const int64_t tiles = tiles_of(pixels);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t from = pixels * t / tiles, to = pixels * (t + 1) / tiles;
    kind.channels > kLanes ? tile_of<2>(kind, to - from, first + from) : tile_of<1>(kind, to - from, first + from);
  }
}

template <typename T, int stride, int pixels>
[[gnu::always_inline]] inline void depthwise_tile(const float* const (&rows)[3], int64_t first,
                                                  const Floats (&taps)[kTaps], Floats bias, const Bounds& bounds,
                                                  T* to) {
  Floats sums[pixels];
#pragma GCC unroll 7
  for (int p = 0; p < pixels; ++p) sums[p] = bias;
#pragma GCC unroll 3
  for (int y = 0; y < 3; ++y) {
    const float* const from = rows[y] + first * stride * kLanes;
#pragma GCC unroll 3
    for (int x = 0; x < 3; ++x) {
#pragma GCC unroll 7
      for (int p = 0; p < pixels; ++p) {
        sums[p] = multiply_add(load(from + (p * stride + x) * kLanes), taps[y * 3 + x], sums[p]);
      }
    }
  }
#pragma GCC unroll 7
  for (int p = 0; p < pixels; ++p) {
    Products<T>::keep(to + (first + p) * kLanes, bounds.of(sums[p]));
  }
}

template <typename T, int stride, int pixels>
void depthwise_rest(int64_t count, const float* const (&rows)[3], int64_t first, const Floats (&taps)[kTaps],
                    Floats bias, const Bounds& bounds, T* to) {
  if constexpr (pixels > 0) {
    if (count < pixels) return depthwise_rest<T, stride, pixels - 1>(count, rows, first, taps, bias, bounds, to);
    depthwise_tile<T, stride, pixels>(rows, first, taps, bias, bounds, to);
  }
}

template <typename T>
class Block {
 public:
  Block(const InvertedResidualForward& a, int64_t thread)
      : a_(a), s_(a.shape), own_(static_cast<char*>(a.scratch) + thread * thread_stride(a.plan.thread_bytes)) {
    const int64_t right = larger(0, (s_.out_width - 1) * s_.stride + 3 - s_.left - s_.in_width);
    const int64_t pitch = (s_.left + s_.in_width + right) * kLanes;
    auto* const data = reinterpret_cast<float*>(own_);
    ring_ = {.data = data + pitch,
             .rows = a.plan.ring_rows,
             .pitch = pitch,
             .plane = pitch * a.plan.ring_rows,
             .zeros = data};
    for (int64_t i = 0; i < pitch; i += kLanes) store(data + i, Floats{});
    for (int64_t row = 0; row < kPanelBlocks * a.plan.ring_rows; ++row) {
      float* const columns = ring_.data + row * pitch;
      for (int64_t i = 0; i < s_.left; ++i) store(columns + i * kLanes, Floats{});
      for (int64_t i = s_.left + s_.in_width; i < pitch / kLanes; ++i) store(columns + i * kLanes, Floats{});
    }
    hidden_ = reinterpret_cast<T*>(ring_.data + kPanelBlocks * ring_.plane);
  }

  // Returns the memory behind the ring, for the hidden maps of a band.
  T* hidden() const { return hidden_; }

  // Makes the rows [first, end) of the output of the depthwise convolution, for a panel: block b of it at
  // to + b * step.
  void make_hidden(int64_t sample, int64_t panel, int64_t first, int64_t end, T* to, int64_t step) const {
    const int64_t pixels = s_.in_height * s_.in_width, in_blocks = blocks_of(s_.in_channels);
    const int64_t block = panel * kPanelBlocks;
    const Bounds bounds(s_.convolved);
    const T* const source = static_cast<const T*>(a_.source) + sample * in_blocks * pixels * kLanes;
    Expansion<T> expansion{{.input = source,
                            .in_channels = s_.in_channels,
                            .in_step = pixels * kLanes,
                            .weights = static_cast<const T*>(a_.expand) + block * kLanes * in_blocks * kLanes,
                            .bias = a_.expand_bias + block * kLanes,
                            .channels = s_.hidden_channels - block * kLanes},
                           ring_,
                           s_.in_width,
                           s_.left,
                           Bounds(s_.expanded)};
    const int64_t blocks = smaller(kPanelBlocks, blocks_of(s_.hidden_channels) - block);
    const int64_t rows = (ring_.rows - 3) / s_.stride + 1;
    int64_t made = larger(0, first * s_.stride - s_.top);
    for (int64_t row = first; row < end; row += rows) {
      const int64_t last = smaller(end, row + rows);
      const int64_t wanted = smaller(s_.in_height, (last - 1) * s_.stride - s_.top + 3);
      if (wanted > made) {
        const int64_t count = (wanted - made) * s_.in_width;
        if (s_.expands) {
          make_tiles(expansion, made * s_.in_width, count, 0, tiles_of(count));
        } else {
          copy_rows(source + block * pixels * kLanes, blocks, made, wanted);
        }
        made = wanted;
      }
      for (int64_t b = 0; b < blocks; ++b) {
        Floats taps[kTaps];
        for (int64_t i = 0; i < kTaps; ++i) taps[i] = load(a_.depthwise + ((block + b) * kTaps + i) * kLanes);
        const Floats bias = load(a_.depthwise_bias + (block + b) * kLanes);
        for (int64_t out = row; out < last; ++out) {
          const float* from[3];
          for (int64_t y = 0; y < 3; ++y) {
            const int64_t r = out * s_.stride - s_.top + y;
            from[y] = r < 0 || r >= s_.in_height ? ring_.zeros : ring_.row(r) + b * ring_.plane;
          }
          T* const at = to + b * step + (out - first) * s_.out_width * kLanes;
          s_.stride == 1 ? convolve_row<1>(from, taps, bias, bounds, at)
                         : convolve_row<2>(from, taps, bias, bounds, at);
        }
      }
    }
  }

  // Makes the tiles [begin, end) of a panel of the output, for the pixels [first, first + pixels) of an image, of
  // hidden maps that begin with the first of them and have `step` elements a block.
  void make_output(int64_t sample, int64_t panel, int64_t first, int64_t pixels, const T* hidden, int64_t step,
                   int64_t begin, int64_t end) const {
    const int64_t plane = s_.out_height * s_.out_width * kLanes, out_blocks = blocks_of(s_.out_channels);
    const int64_t hidden_blocks = blocks_of(s_.hidden_channels), block = panel * kPanelBlocks;
    const int64_t at = (sample * out_blocks + block) * plane + first * kLanes;
    const T* const residual = static_cast<const T*>(a_.residual);
    const Projection<T> projection{
        {.input = hidden,
         .in_channels = s_.hidden_channels,
         .in_step = step,
         .weights = static_cast<const T*>(a_.project) + block * kLanes * hidden_blocks * kLanes,
         .bias = a_.project_bias + block * kLanes,
         .channels = s_.out_channels - block * kLanes},
        residual == nullptr ? nullptr : residual + at,
        static_cast<T*>(a_.output) + at,
        plane,
        Bounds(s_.projected)};
    make_tiles(projection, 0, pixels, begin, end);
  }

  static int64_t blocks_of(int64_t channels) { return (channels + kLanes - 1) / kLanes; }
  static int64_t panels_of(int64_t channels) { return (blocks_of(channels) + kPanelBlocks - 1) / kPanelBlocks; }

 private:
  template <int stride>
  void convolve_row(const float* const (&rows)[3], const Floats (&taps)[kTaps], Floats bias, const Bounds& bounds,
                    T* to) const {
    int64_t x = 0;
    for (; x + kRowPixels <= s_.out_width; x += kRowPixels) {
      depthwise_tile<T, stride, kRowPixels>(rows, x, taps, bias, bounds, to);
    }
    depthwise_rest<T, stride, kRowPixels - 1>(s_.out_width - x, rows, x, taps, bias, bounds, to);
  }

  void copy_rows(const T* from, int64_t blocks, int64_t first, int64_t end) const {
    const int64_t plane = s_.in_height * s_.in_width * kLanes, width = s_.in_width * kLanes;
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t r = first; r < end; ++r) {
        const T* const row = from + b * plane + r * width;
        float* const to = ring_.data + b * ring_.plane + r % ring_.rows * ring_.pitch + s_.left * kLanes;
        for (int64_t i = 0; i < width; i += kLanes) store(to + i, load(row + i));
      }
    }
  }

  const InvertedResidualForward& a_;
  const InvertedResidualShape& s_;
  char* const own_;
  Ring ring_;
  T* hidden_;
};

template <typename T>
void make_shared(const InvertedResidualForward& a, const Block<T>& block, int64_t thread, int64_t threads) {
  using B = Block<T>;
  const InvertedResidualShape& s = a.shape;
  const int64_t pixels = s.out_height * s.out_width, step = pixels * kLanes;
  const int64_t image = B::blocks_of(s.hidden_channels) * step;
  T* const hidden =
      reinterpret_cast<T*>(static_cast<char*>(a.scratch) + thread_scratch_bytes(a.plan.thread_bytes, threads));
  const int64_t panels = B::panels_of(s.hidden_channels), tasks = s.batch * panels;
  for (int64_t task = tasks * thread / threads; task < tasks * (thread + 1) / threads; ++task) {
    const int64_t sample = task / panels, panel = task % panels;
    block.make_hidden(sample, panel, 0, s.out_height, hidden + sample * image + panel * kPanelBlocks * step, step);
  }
#pragma omp barrier
  const int64_t tiles = tiles_of(pixels), out_panels = B::panels_of(s.out_channels);
  const int64_t first = s.batch * out_panels * tiles * thread / threads,
                end = s.batch * out_panels * tiles * (thread + 1) / threads;
  for (int64_t i = first; i < end;) {
    const int64_t panel = i / tiles % out_panels, sample = i / tiles / out_panels, begin = i % tiles;
    const int64_t count = smaller(tiles - begin, end - i);
    block.make_output(sample, panel, 0, pixels, hidden + sample * image, step, begin, begin + count);
    i += count;
  }
}

template <typename T>
void make_bands(const InvertedResidualForward& a, const Block<T>& block, int64_t thread, int64_t threads) {
  using B = Block<T>;
  const InvertedResidualShape& s = a.shape;
  const int64_t bands = a.plan.bands, tasks = s.batch * bands;
  for (int64_t task = tasks * thread / threads; task < tasks * (thread + 1) / threads; ++task) {
    const int64_t sample = task / bands, band = task % bands;
    const int64_t first = s.out_height * band / bands, end = s.out_height * (band + 1) / bands;
    const int64_t pixels = (end - first) * s.out_width, step = pixels * kLanes;
    for (int64_t panel = 0; panel < B::panels_of(s.hidden_channels); ++panel) {
      block.make_hidden(sample, panel, first, end, block.hidden() + panel * kPanelBlocks * step, step);
    }
    for (int64_t panel = 0; panel < B::panels_of(s.out_channels); ++panel) {
      block.make_output(sample, panel, first * s.out_width, pixels, block.hidden(), step, 0, tiles_of(pixels));
    }
  }
}

template <typename T>
void make_inverted_residual(const InvertedResidualForward& a) {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const Block<T> block(a, thread);
    a.plan.shared ? make_shared(a, block, thread, threads) : make_bands(a, block, thread, threads);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
