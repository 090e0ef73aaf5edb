// A thread's pixels go through two stages in chunks: the sums of the parts of the input (16 bits), then for each panel
// of outputs and each group of pixels all products, one after the other, whose sums stay in registers and the
// first-level cache until the outputs are written.
//
// A group has 2^levels tiles of pixels, a panel as many pairs of output blocks: these are the parts that Strassen's
// products cut rows and columns into. So they are neighbours, and their number does not have to be divisible in the
// large.
#include "trainyard/nn/cpu/quantized/quantized_strassen.h"

#include <omp.h>

#include "trainyard/nn/cpu/quantized/finish.h"
#include "trainyard/nn/cpu/quantized/multiply.h"
#include "trainyard/nn/cpu/quantized/strassen_sums.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

constexpr int kTile = kQuantizedTile;
constexpr int64_t kBlocks = kQuantizedPanelBlocks;  // of a tile
// A chunk has so many pixels at most: its sums come from the second-level cache and the last one, a panel's weights
// from the second-level one.
constexpr int64_t kMostPixels = 224;
// Columns are multiplied in segments, so that a panel's weights do not exceed 400 KiB.
constexpr int64_t kMostColumns = 1024 / kLanes;
// Weights and sums are asked for so many bytes ahead.
constexpr int64_t kAheadBytes = 512;

int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// How the work is divided.
template <int levels>
struct Work {
  static constexpr int64_t kCuts = int64_t{1} << levels, kParts = power(kStrassenParts, levels),
                           kProducts = power(kStrassenProducts, levels);
  static constexpr int64_t kPanel = kCuts * kBlocks;  // output blocks

  int64_t pixels;  // of all images
  int64_t depth;   // columns of a part, in blocks of channels at a position of the window
  int64_t segments, panels;
  int64_t most_rows, most_groups;  // of a chunk: pixels of a part of all groups

  explicit Work(const QuantizedConvolution& a)
      : pixels(a.output_shape.batch * a.output_shape.pixels()),
        depth(a.input_shape.blocks() * a.window_pixels() / kCuts),
        segments(divided_up(depth * kCuts, kMostColumns)),
        panels(a.output_shape.blocks() / kPanel) {
    most_rows = smaller(kMostPixels / kCuts, divided_up(divided_up(pixels, kCuts), a.threads));
    most_groups = divided_up(most_rows, kTile);
  }
  int64_t first_column(int64_t segment) const { return depth * segment / segments; }  // of a part
  int64_t columns(int64_t segment) const { return first_column(segment + 1) - first_column(segment); }
  // In numbers. The memory of a group is that of one whose tiles are full.
  int64_t group_sums() const { return kProducts * divided_up(depth, segments) * kTile * kLanes; }
  int64_t panel_weights(int64_t columns) const { return kProducts * columns * kLanes * kBlocks * kLanes; }
  static constexpr int64_t kGroupResults = kParts * kTile * kBlocks * kLanes;
  int64_t results() const { return segments > 1 ? panels * most_groups * kGroupResults : 0; }
  int64_t thread_bytes() const {
    return divided_up(most_groups * group_sums() * 2, 64) * 64 + divided_up(results() * 4, 64) * 64;
  }
};

// Reads the input of some pixels, less the zero point.
template <int levels>
class Input {
 public:
  using W = Work<levels>;

  Input(const QuantizedConvolution& a, const W& work)
      : a_(a), work_(work), blocks_(a.input_shape.blocks()), zero_(Shorts{} + a.input_zero) {
    const Window& w = a.window;
    const MapShape &in = a.input_shape, &out = a.output_shape;
    meets_padding_ =
        w.top > 0 || w.left > 0 ||
        (out.height - 1) * w.stride_height + (w.kernel_height - 1) * a.dilation_height - w.top >= in.height ||
        (out.width - 1) * w.stride_width + (w.kernel_width - 1) * a.dilation_width - w.left >= in.width;
    __builtin_memset(padding_, a.input_zero, sizeof(padding_));
  }

  // Makes the sums of the group whose first pixel is `first`, of `rows` pixels a part.
  void make_sums(int64_t first, int64_t rows, int64_t segment, int16_t* to) const {
    meets_padding_ ? make<true>(first, rows, segment, to) : make<false>(first, rows, segment, to);
  }

 private:
  // A pixel's window: its first row and column, and where they lie.
  struct Corner {
    int64_t y, x;
    const uint8_t* data;
  };
  // A place in the window and a block of channels.
  struct Column {
    int64_t y, x, data;
  };

  // The last pixel takes the places of those behind it, whose results are not written.
  Corner corner(int64_t pixel) const {
    const MapShape &in = a_.input_shape, &out = a_.output_shape;
    const int64_t at = smaller(pixel, work_.pixels - 1), sample = at / out.pixels(), place = at % out.pixels();
    const int64_t y = place / out.width * a_.window.stride_height - a_.window.top;
    const int64_t x = place % out.width * a_.window.stride_width - a_.window.left;
    return {.y = y, .x = x, .data = a_.input + (sample * blocks_ * in.pixels() + y * in.width + x) * kLanes};
  }
  Column column(int64_t index) const {
    const MapShape& in = a_.input_shape;
    const int64_t place = index / blocks_, block = index % blocks_;
    const int64_t y = place / a_.window.kernel_width * a_.dilation_height;
    const int64_t x = place % a_.window.kernel_width * a_.dilation_width;
    return {.y = y, .x = x, .data = (block * in.pixels() + y * in.width + x) * kLanes};
  }
  template <bool meets_padding>
  [[gnu::always_inline]] const uint8_t* at(const Corner& corner, const Column& column) const {
    if constexpr (meets_padding) {
      const auto y = static_cast<uint64_t>(corner.y + column.y), x = static_cast<uint64_t>(corner.x + column.x);
      if (y >= static_cast<uint64_t>(a_.input_shape.height) || x >= static_cast<uint64_t>(a_.input_shape.width)) {
        return padding_;
      }
    }
    return corner.data + column.data;
  }

  template <bool meets_padding>
  void make(int64_t first, int64_t rows, int64_t segment, int16_t* to) const {
    const int64_t columns = work_.columns(segment), pairs = (rows + 1) / 2;  // of pixels
    Corner corners[W::kCuts][kTile];
    for (int64_t i = 0; i < W::kCuts; ++i) {
      for (int64_t p = 0; p < 2 * pairs; ++p) corners[i][p] = corner(first + i * rows + smaller(p, rows - 1));
    }
    const int64_t step = columns * pairs * 2 * kLanes;
    for (int64_t b = 0; b < columns; ++b) {
      Column of[W::kCuts];
      for (int64_t j = 0; j < W::kCuts; ++j) {
        of[j] = column(W::kCuts * work_.first_column(segment) + j * columns + b);
      }
      for (int64_t p = 0; p < 2 * pairs; p += 2, to += 2 * kLanes) {
        Shorts parts[W::kParts];
#pragma GCC unroll 16
        for (int64_t k = 0; k < W::kParts; ++k) {
          const auto& row = corners[part_place(k, levels, 0)];
          const Column& here = of[part_place(k, levels, 1)];
          parts[k] = load_pair(at<meets_padding>(row[p], here), at<meets_padding>(row[p + 1], here)) - zero_;
        }
        left_sums<levels>(parts, to, step);
      }
    }
  }

  const QuantizedConvolution& a_;
  const W& work_;
  const int64_t blocks_;
  const Shorts zero_;
  bool meets_padding_;
  uint8_t padding_[kLanes];
};

// What the products of a group and a panel read, in the order in which they follow each other.
struct Stream {
  const int16_t *pixels, *weights;
  int64_t columns;  // of a product
  // Of the weights of the panel behind, of which each group fetches its share: lines [begin, end) of a column's.
  const char* ahead;
  int64_t begin, end;
};

template <int pixels>
[[gnu::always_inline]] inline void multiply(Stream& s, Ints (&sums)[pixels][kBlocks]) {
  constexpr int64_t kPixelStep = (pixels + 1) / 2 * 2 * kLanes, kColumnBytes = kLanes * kBlocks * kLanes * 2;
  const int16_t *from = s.pixels, *weights = s.weights;
#pragma GCC unroll 14
  for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlocks; ++v) sums[p][v] = Ints{};
  }
  for (int64_t b = 0; b < s.columns; ++b, from += kPixelStep, s.ahead += kColumnBytes) {
    for (int64_t line = s.begin; line < s.end; ++line) _mm_prefetch(s.ahead + line * 64, _MM_HINT_T1);
#pragma GCC unroll 8
    for (int64_t k = 0; k < kLanes; k += 2, weights += kBlocks * kLanes * 2) {
      Ints line[kBlocks];
#pragma GCC unroll 2
      for (int v = 0; v < kBlocks; ++v) {
        line[v] = load_ints(weights + v * kLanes * 2);
        if (v * kLanes * 4 % 64 == 0) {
          _mm_prefetch(reinterpret_cast<const char*>(weights + v * kLanes * 2) + kAheadBytes, _MM_HINT_T0);
        }
      }
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) {
        const Ints word = fill_word(from + p * kLanes + k);
#pragma GCC unroll 2
        for (int v = 0; v < kBlocks; ++v) sums[p][v] = DotOfPairs::add(sums[p][v], word, line[v]);
      }
    }
  }
  s.pixels = from;
  s.weights = weights;
}

// Calls sink(part, sums) with the results of a group and a panel. `kept` is memory for those that are not complete.
template <int levels, int pixels, typename Sink>
[[gnu::always_inline]] inline void make_results(Stream& s, int32_t* kept, const Sink& sink) {
  if constexpr (levels == 0) {
    Ints sums[pixels][kBlocks];
    multiply<pixels>(s, sums);
    sink(0, sums);
  } else {
    constexpr int64_t kInner = power(kStrassenParts, levels - 1), kNumbers = pixels * kBlocks * kLanes;
    for (int r = 0; r < kStrassenProducts; ++r) {
      const StrassenUse use = kStrassenUses[r];
      make_results<levels - 1, pixels>(
          s, kept + kStrassenKept * kInner * kNumbers,
          [&](int64_t part, Ints(&sums)[pixels][kBlocks]) __attribute__((always_inline)) {
            const auto each = [&](int at, const auto& function) __attribute__((always_inline)) {
              if (at < 0) return;
              int32_t* const place = kept + (at * kInner + part) * kNumbers;
#pragma GCC unroll 14
              for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
                for (int v = 0; v < kBlocks; ++v) function(place + (p * kBlocks + v) * kLanes, sums[p][v]);
              }
            };
            each(
                use.also, [](int32_t * place, Ints sum)
                              __attribute__((always_inline)) { store_ints(place, load_ints(place) + sum); });
            each(
                use.add,
                [](const int32_t* place, Ints& sum) __attribute__((always_inline)) { sum += load_ints(place); });
            each(
                use.keep, [](int32_t * place, Ints sum) __attribute__((always_inline)) { store_ints(place, sum); });
            if (use.part >= 0) sink(use.part * kInner + part, sums);
          });
    }
  }
}

// Makes the outputs of a panel.
template <int levels>
class Panel {
 public:
  using W = Work<levels>;

  Panel(const QuantizedConvolution& a, const W& work, int64_t panel)
      : a_(a), work_(work), first_block_(panel * W::kPanel) {
    const int64_t terms = a.input_shape.padded_channels() * a.window_pixels(), lanes = W::kPanel * kLanes;
    const float *const factors = a.factors + first_block_ * kLanes, *const bias = a.bias + first_block_ * kLanes;
    writes_ = WriteBytes<false>::fits(a.to, factors, bias, lanes, terms);
    adds_ = WriteBytes<true>::fits(a.to, factors, bias, lanes, terms);
  }

  // Makes the outputs of the group whose first pixel is `first`, of `rows` pixels a part. `before` are results of
  // segments before this one or null, `after` is where those of this one are kept instead of being written, or null.
  template <int pixels = kTile>
  void make(int64_t first, int64_t rows, Stream& s, const int32_t* before, int32_t* after) const {
    if constexpr (pixels > 1) {
      if (rows < pixels) return make<pixels - 1>(first, rows, s, before, after);
    }
    make_group<pixels>(first, s, before, after);
  }

 private:
  template <int pixels>
  [[gnu::noinline]] void make_group(int64_t first, Stream& s, const int32_t* before, int32_t* after) const {
    constexpr int64_t kNumbers = pixels * kBlocks * kLanes;
    alignas(64) int32_t kept[(W::kParts - 1) * kNumbers];
    make_results<levels, pixels>(
        s, kept, [&](int64_t part, Ints(&sums)[pixels][kBlocks]) __attribute__((always_inline)) {
          alignas(64) Ints made[pixels][kBlocks];
#pragma GCC unroll 14
          for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
            for (int v = 0; v < kBlocks; ++v) {
              const int64_t at = part * kNumbers + (p * kBlocks + v) * kLanes;
              Ints sum = sums[p][v];
              if (before != nullptr) sum += load_ints(before + at);
              if (after != nullptr) store_ints(after + at, sum);
              made[p][v] = sum;
            }
          }
          if (after == nullptr) {
            write<pixels>(first + part_place(part, levels, 0) * pixels, part_place(part, levels, 1) * kBlocks, made);
          }
        });
  }

  // Writes the outputs of pixels from `pixel` on and of the panel's blocks from `block` on.
  template <int pixels>
  [[gnu::noinline]] void write(int64_t pixel, int64_t block, const Ints (&sums)[pixels][kBlocks]) const {
    const int64_t in_sample = a_.output_shape.pixels(), count = smaller(pixels, work_.pixels - pixel);
    if (count == pixels && pixel % in_sample + pixels <= in_sample) {
      if (writes_) return write_bytes<false, pixels>(pixel, block, sums);
      if (adds_) return write_bytes<true, pixels>(pixel, block, sums);
    }
    for (int v = 0; v < kBlocks; ++v) {
      const int64_t own = first_block_ + block + v;
      const Finish f{.to = a_.to,
                     .factor = load(a_.factors + own * kLanes),
                     .bias = load(a_.bias + own * kLanes),
                     .lanes = channel_lanes(a_.output_shape, own)};
      int32_t stored[pixels * kLanes];
      for (int p = 0; p < pixels; ++p) store_ints(stored + p * kLanes, sums[p][v]);
      for (int64_t p = 0; p < count;) {
        // Up to the end of the sample.
        const int64_t here = smaller(count - p, in_sample - (pixel + p) % in_sample);
        finish(f, stored + p * kLanes, here, element(pixel + p, own));
        p += here;
      }
    }
  }
  template <bool residual, int pixels>
  [[gnu::always_inline]] void write_bytes(int64_t pixel, int64_t block, const Ints (&sums)[pixels][kBlocks]) const {
    const int64_t own = first_block_ + block;
    WriteBytes<residual> end(a_.to, a_.factors + own * kLanes, a_.bias + own * kLanes,
                             a_.output_shape.pixels() * kLanes, /*streams=*/false);
    end.output += element(pixel, own);
    if (residual) end.added += element(pixel, own);
    end(sums);
  }
  // Returns the element of the output where a pixel begins.
  int64_t element(int64_t pixel, int64_t block) const {
    const MapShape& out = a_.output_shape;
    const int64_t sample = pixel / out.pixels();
    return ((sample * out.blocks() + block) * out.pixels() + pixel % out.pixels()) * kLanes;
  }

  const QuantizedConvolution& a_;
  const W& work_;
  const int64_t first_block_;
  bool writes_, adds_;
};

// Makes the outputs of the pixels from `first` on, of which each part of all groups has `rows`.
template <int levels>
void make_chunk(const QuantizedConvolution& a, const Work<levels>& work, const Input<levels>& input, int64_t first,
                int64_t rows, uint8_t* memory) {
  using W = Work<levels>;
  constexpr int64_t kColumnLines = kLanes * kBlocks * kLanes * 2 / 64;  // of weights
  auto* const sums = reinterpret_cast<int16_t*>(memory);
  auto* const results =
      reinterpret_cast<int32_t*>(memory + divided_up(work.most_groups * work.group_sums() * 2, 64) * 64);
  const int64_t groups = divided_up(rows, kTile);
  for (int64_t segment = 0; segment < work.segments; ++segment) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = rows * g / groups;
      input.make_sums(first + begin * W::kCuts, rows * (g + 1) / groups - begin, segment, sums + g * work.group_sums());
    }
    const int64_t columns = work.columns(segment), size = work.panel_weights(columns);
    const auto* const weights =
        reinterpret_cast<const int16_t*>(a.weights) + work.panels * work.panel_weights(work.first_column(segment));
    for (int64_t n = 0; n < work.panels; ++n) {
      const Panel<levels> panel(a, work, n);
      const bool next = n + 1 < work.panels;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t begin = rows * g / groups;
        Stream s{.pixels = sums + g * work.group_sums(),
                 .weights = weights + n * size,
                 .columns = columns,
                 .ahead = reinterpret_cast<const char*>(weights + (n + 1) * size),
                 .begin = next ? kColumnLines * g / groups : 0,
                 .end = next ? kColumnLines * (g + 1) / groups : 0};
        int32_t* const kept = results + (n * work.most_groups + g) * W::kGroupResults;
        panel.make(first + begin * W::kCuts, rows * (g + 1) / groups - begin, s, segment > 0 ? kept : nullptr,
                   segment + 1 < work.segments ? kept : nullptr);
      }
    }
  }
}

template <int levels>
void convolve(const QuantizedConvolution& a) {
  using W = Work<levels>;
  const W work(a);
  if (work.pixels == 0) return;
  const Input<levels> input(a, work);
  const int64_t all = divided_up(work.pixels, W::kCuts);
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    auto* const memory = static_cast<uint8_t*>(a.scratch) + thread * work.thread_bytes();
    const int64_t begin = all * thread / threads, rows = all * (thread + 1) / threads - begin;
    const int64_t chunks = divided_up(rows, work.most_rows);
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = begin + rows * c / chunks;
      make_chunk<levels>(a, work, input, first * W::kCuts, begin + rows * (c + 1) / chunks - first, memory);
    }
  }
}

// Packs the weights of one lane of a panel's product: [segment][panel][product][column][pair of channels][block][lane].
template <int levels>
class Packing {
 public:
  using W = Work<levels>;

  Packing(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack) : a_(a), pack_(pack), work_(a) {}

  int64_t tasks() const { return work_.panels * W::kProducts; }

  void make(int64_t task) const {
    const int64_t panel = task / W::kProducts, product = task % W::kProducts;
    for (int64_t segment = 0; segment < work_.segments; ++segment) {
      const int64_t columns = work_.columns(segment);
      auto* const to = reinterpret_cast<int16_t*>(pack_.packed) +
                       work_.panels * work_.panel_weights(work_.first_column(segment)) +
                       panel * work_.panel_weights(columns) + product * columns * kLanes * kBlocks * kLanes;
      for (int64_t b = 0; b < columns; ++b) {
        for (int64_t i = 0; i < kBlocks * kLanes; ++i) {
          int32_t sums[kLanes] = {};
          for (int64_t part = 0; part < W::kParts; ++part) {
            const int factor = factor_of(product, part);
            if (factor == 0) continue;
            add(factor, (panel * W::kCuts + part_place(part, levels, 1)) * kBlocks * kLanes + i,
                W::kCuts * work_.first_column(segment) + part_place(part, levels, 0) * columns + b, sums);
          }
          for (int64_t c = 0; c < kLanes; ++c) {
            to[((b * kLanes + c) / 2 * kBlocks * kLanes + i) * 2 + c % 2] = static_cast<int16_t>(sums[c]);
          }
        }
      }
    }
  }

 private:
  static int factor_of(int64_t product, int64_t part) {
    int factor = 1;
    for (int level = 0; level < levels; ++level) {
      factor *= kStrassenRight[product / power(kStrassenProducts, level) % kStrassenProducts]
                              [part / power(kStrassenParts, level) % kStrassenParts];
    }
    return factor;
  }
  // Adds factor * the weights of an output at a position and a block of channels.
  void add(int factor, int64_t output, int64_t column, int32_t (&sums)[kLanes]) const {
    const int64_t blocks = a_.input_shape.blocks(), window = a_.window_pixels(), channels = a_.input_shape.channels;
    const int64_t first = column % blocks * kLanes, count = smaller(kLanes, channels - first);
    if (output >= a_.output_shape.channels) return;
    const int8_t* const from = pack_.plain + (output * channels + first) * window + column / blocks;
    for (int64_t c = 0; c < count; ++c) sums[c] += factor * from[c * window];
  }

  const QuantizedConvolution& a_;
  const QuantizedConvolutionPack& pack_;
  const W work_;
};

template <int levels>
void pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack) {
  const Packing<levels> packing(a, pack);
#pragma omp parallel for schedule(static)
  for (int64_t task = 0; task < packing.tasks(); ++task) packing.make(task);
}

}  // namespace

void quantized_strassen(const QuantizedConvolution& a) {
  a.strassen == 1 ? convolve<1>(a) : convolve<2>(a);
}

int64_t quantized_strassen_scratch_bytes(const QuantizedConvolution& a) {
  return a.threads * (a.strassen == 1 ? Work<1>(a).thread_bytes() : Work<2>(a).thread_bytes());
}

void quantized_strassen_pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& given) {
  a.strassen == 1 ? pack<1>(a, given) : pack<2>(a, given);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
