#include <omp.h>

#include "trainyard/nn/cpu/quantized/clipped_products.h"
#include "trainyard/nn/cpu/quantized/finish.h"
#include "trainyard/nn/cpu/quantized/multiply.h"
#include "trainyard/nn/cpu/quantized/quantized_winograd.h"
#include "trainyard/nn/cpu/simd/cache.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The input of a chunk of outputs, with its padding, stays in a core's second-level cache with the weights of a panel
// while all outputs are made of it.
constexpr int64_t kChunkBytes = 256 << 10;

int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// One direction of the window over the input. Output i and place k of the window meet at input i * stride +
// k * dilation - before. A phase is the inputs that some places meet, `stride` apart: places k and k + period share
// one.
struct Axis {
  int64_t kernel, stride, dilation, before, in, out;
  int64_t period;

  Axis(int64_t kernel_size, int64_t stride_size, int64_t dilation_size, int64_t padding, int64_t in_size,
       int64_t out_size)
      : kernel(kernel_size), stride(stride_size), dilation(dilation_size), before(padding), in(in_size), out(out_size) {
    int64_t divisor = stride, other = dilation;
    while (other != 0) {
      const int64_t rest = divisor % other;
      divisor = other;
      other = rest;
    }
    period = stride / divisor;
  }
  int64_t phases() const { return smaller(kernel, period); }
  int64_t phase(int64_t k) const { return k % period; }
  int64_t shift(int64_t k) const { return k * dilation / stride; }  // within the phase
  int64_t length(int64_t outputs) const { return outputs + shift(kernel - 1); }
  // Returns the input of the i-th pixel of a phase.
  int64_t input(int64_t phase, int64_t i) const { return i * stride + phase * dilation % stride - before; }
};

// How a convolution is divided: chunks of some samples, or some rows of one, times parts of the panels.
struct Division {
  Axis rows, columns;
  bool vectors;
  bool flat;    // the outputs of a row follow those of the row before, in the source as well: one run of pixels
  bool one;     // a 1x1 window and stride 1: the pixels of an image are one column
  bool direct;  // the input is read where it is
  int64_t batch, blocks, panels;
  int64_t samples, sample_groups, row_groups, parts;

  int64_t tasks() const { return sample_groups * row_groups * parts; }
  int64_t most_rows() const { return divided_up(rows.out, row_groups); }
  int64_t row_pixels() const { return columns.phases() * columns.length(columns.out); }
  int64_t phase_rows(int64_t outputs) const { return rows.length(outputs); }
  int64_t sample_pixels(int64_t outputs) const { return rows.phases() * phase_rows(outputs) * row_pixels(); }
  int64_t chunk_pixels() const { return samples * sample_pixels(most_rows()); }
};

template <typename Dot>
Division divide(const QuantizedConvolution& a) {
  const Window& w = a.window;
  const MapShape &in = a.input_shape, &out = a.output_shape;
  const bool one = w.kernel_height == 1 && w.kernel_width == 1 && w.stride_height == 1 && w.stride_width == 1 &&
                   w.top == 0 && w.left == 0 && in.height == out.height && in.width == out.width;
  Division d{.rows = one ? Axis(1, 1, 1, 0, in.pixels(), in.pixels())
                         : Axis(w.kernel_height, w.stride_height, a.dilation_height, w.top, in.height, out.height),
             .columns = one ? Axis(1, 1, 1, 0, 1, 1)
                            : Axis(w.kernel_width, w.stride_width, a.dilation_width, w.left, in.width, out.width),
             .vectors = a.vectors};
  d.flat = a.window_pixels() == 1;
  d.one = one;
  d.direct = one && !a.vectors && Dot::kReadsMaps;
  d.batch = in.batch;
  d.blocks = in.blocks();
  d.panels = divided_up(out.blocks(), kQuantizedPanelBlocks);
  d.samples = d.sample_groups = d.row_groups = d.parts = 1;

  // Estimates in cycles, of registers of 64 bytes.
  const int64_t terms = d.blocks * in.block * a.window_pixels();
  const int64_t pixel_bytes = d.blocks * in.block * static_cast<int64_t>(sizeof(typename Dot::Element));
  const int64_t panel_bytes = terms * kQuantizedPanelBlocks * kLanes;
  const int64_t sample_bytes = d.sample_pixels(d.rows.out) * pixel_bytes;
  const int64_t least_groups = divided_up(sample_bytes, kChunkBytes);
  if (d.batch == 0 || d.rows.out == 0) return d;
  double best = 0;
  const auto consider = [&](int64_t samples, int64_t row_groups, int64_t parts) {
    Division t = d;
    t.samples = samples;
    t.sample_groups = divided_up(d.batch, samples);
    t.row_groups = smaller(row_groups, d.rows.out);
    t.parts = smaller(parts, d.panels);
    const auto turns = static_cast<double>(divided_up(t.tasks(), a.threads));
    const auto pixels = static_cast<double>(samples * t.most_rows() * d.columns.out),
               panels = static_cast<double>(divided_up(d.panels, t.parts));
    const double products = pixels * panels * static_cast<double>(terms) / 4;
    const double copied = d.direct ? 0 : static_cast<double>(t.chunk_pixels() * pixel_bytes) / 16;
    const double weights = panels * static_cast<double>(panel_bytes) / 32;
    const double cost = turns * (products + copied + weights + 500);
    if (best != 0 && cost >= best) return;
    best = cost;
    d.samples = t.samples;
    d.sample_groups = t.sample_groups;
    d.row_groups = t.row_groups;
    d.parts = t.parts;
  };
  const int64_t many_parts[] = {1, 2, a.threads, 2 * a.threads};
  if (least_groups == 1) {
    const int64_t fitting = smaller(d.batch, larger(1, kChunkBytes / larger(1, sample_bytes)));
    const int64_t even = divided_up(d.batch, a.threads);
    for (const int64_t parts : many_parts) {
      consider(fitting, 1, parts);
      consider(smaller(fitting, divided_up(even, divided_up(even, fitting))), 1, parts);
      consider(1, 1, parts);
    }
  }
  for (const int64_t parts : many_parts) {
    consider(1, least_groups, parts);
    consider(1, divided_up(least_groups, a.threads) * a.threads, parts);
    consider(1, divided_up(least_groups, a.threads) * a.threads * 2, parts);
  }
  return d;
}

int64_t whole_lines(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}
int64_t place_bytes(const QuantizedConvolution& a) {
  return whole_lines(a.window_pixels() * 8);
}
// Returns the bytes of a panel's weights for pairs.
int64_t widened_bytes(const QuantizedConvolution& a) {
  return a.input_shape.padded_channels() * kQuantizedPanelBlocks * kLanes * 2;
}
// Clipped bytes lie before their outliers, or pairs before a panel's weights for them.
template <typename Dot>
int64_t source_bytes(const QuantizedConvolution& a, const Division& d) {
  if (d.direct) return 0;
  const int64_t elements = d.chunk_pixels() * d.blocks * a.input_shape.block;
  if constexpr (__is_same(Dot, DotOfClipped)) {
    return whole_lines(larger(whole_lines(elements) + Outliers::bytes(d.chunk_pixels(), d.blocks),
                              whole_lines(2 * elements) + widened_bytes(a)));
  }
  return whole_lines(elements * static_cast<int64_t>(sizeof(typename Dot::Element)));
}

// Samples or rows that one thread computes at a time.
struct Chunk {
  int64_t sample, samples, row, rows;
};

[[gnu::always_inline]] inline void copy_elements(uint8_t* to, const uint8_t* from, int64_t count) {
  __builtin_memcpy(to, from, static_cast<size_t>(count));
}
[[gnu::always_inline]] inline void copy_elements(int16_t* to, const uint8_t* from, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_cvtepu8_epi16(bytes));
  }
  if (i + 8 <= count) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_cvtepu8_epi16(bytes));
    i += 8;
  }
  for (; i < count; ++i) to[i] = from[i];
}

// Copies pixels, of `kPixel` bytes each, that lie `stride` pixels apart.
template <int64_t kPixel, typename Element>
void gather_pixels(Element* to, const uint8_t* from, int64_t count, int64_t stride) {
  if (stride == 1) return copy_elements(to, from, count * kPixel);
  for (int64_t i = 0; i < count; ++i) copy_elements(to + i * kPixel, from + i * stride * kPixel, kPixel);
}

// Copies the input of a chunk: [input block][sample][phase of rows][row][phase of columns][column][lane].
template <typename Dot, int64_t kPixel>
void copy_chunk(const QuantizedConvolution& a, const Division& d, const Chunk& chunk, typename Dot::Element* to) {
  using Element = typename Dot::Element;
  const MapShape& in = a.input_shape;
  if (d.vectors) {
    for (int64_t b = 0; b < d.blocks; ++b) {
      const int64_t lanes = smaller(kPixel, in.channels - b * kPixel);
      for (int64_t n = 0; n < chunk.samples; ++n, to += kPixel) {
        copy_elements(to, a.input + (chunk.sample + n) * in.channels + b * kPixel, lanes);
        for (int64_t i = lanes; i < kPixel; ++i) to[i] = 0;
      }
    }
    return;
  }
  const int64_t columns = d.columns.length(d.columns.out), phase_rows = d.phase_rows(chunk.rows);
  const auto pad = [&](int64_t pixels) {
    for (int64_t i = 0; i < pixels * kPixel; ++i) to[i] = Element{a.input_zero};
    to += pixels * kPixel;
  };
  for (int64_t b = 0; b < d.blocks; ++b) {
    for (int64_t n = 0; n < chunk.samples; ++n) {
      const uint8_t* const plane = a.input + ((chunk.sample + n) * d.blocks + b) * in.pixels() * kPixel;
      if (d.one) {
        copy_elements(to, plane + chunk.row * kPixel, chunk.rows * kPixel);
        to += chunk.rows * kPixel;
        continue;
      }
      for (int64_t phase = 0; phase < d.rows.phases(); ++phase) {
        for (int64_t r = 0; r < phase_rows; ++r) {
          const int64_t row = d.rows.input(phase, chunk.row + r);
          if (row < 0 || row >= d.rows.in) {
            pad(d.row_pixels());
            continue;
          }
          for (int64_t side = 0; side < d.columns.phases(); ++side) {
            // Columns [first, end) of the phase lie within the image.
            const int64_t begin = d.columns.input(side, 0), stride = d.columns.stride;
            const int64_t first = smaller(columns, begin < 0 ? divided_up(-begin, stride) : 0);
            const int64_t end = larger(first, smaller(columns, divided_up(d.columns.in - begin, stride)));
            pad(first);
            gather_pixels<kPixel>(to, plane + (row * d.columns.in + begin + first * stride) * kPixel, end - first,
                                  stride);
            to += (end - first) * kPixel;
            pad(columns - end);
          }
        }
      }
    }
  }
}

// Fetches the input of the next chunk into the second-level cache while this one is computed: a few lines with each
// tile.
class NextChunk {
 public:
  NextChunk(const QuantizedConvolution& a, const Division& d, const Chunk& next, int64_t pixel_bytes, int64_t tiles)
      : a_(a), d_(d), next_(next), pixel_bytes_(pixel_bytes) {
    if (d.vectors || next.samples == 0) return;
    whole_ = d.rows.phases() == d.rows.stride;
    parts_ = next.samples * d.blocks * (whole_ ? 1 : d.rows.phases() * d.phase_rows(next.rows));
    const int64_t rows = next.samples * d.blocks * d.rows.phases() * d.phase_rows(next.rows);
    lines_ = rows * d.columns.in * pixel_bytes / kLine / larger(tiles, 1) + 1;
  }

  void fetch_some() {
    for (int64_t i = 0; i < lines_; ++i, at_ += kLine) {
      while (at_ >= end_) {
        if (part_ == parts_) return;
        begin_part();
      }
      _mm_prefetch(at_, _MM_HINT_T1);
    }
  }

 private:
  static constexpr int64_t kLine = 64;

  // A part is the rows of a block, or one row where others of the image are not read.
  void begin_part() {
    const int64_t in_plane = whole_ ? 1 : d_.rows.phases() * d_.phase_rows(next_.rows);
    const int64_t plane = next_.sample * d_.blocks + part_ / in_plane, row = part_ % in_plane;
    const int64_t last_row = d_.rows.input(d_.rows.phases() - 1, next_.row + d_.phase_rows(next_.rows) - 1);
    const int64_t first = whole_ ? d_.rows.input(0, next_.row)
                                 : d_.rows.input(row % d_.rows.phases(), next_.row + row / d_.rows.phases());
    const int64_t begin = larger(first, 0), end = smaller(d_.rows.in, whole_ ? last_row + 1 : first + 1);
    const char* const image = reinterpret_cast<const char*>(a_.input) + plane * a_.input_shape.pixels() * pixel_bytes_;
    at_ = image + begin * d_.columns.in * pixel_bytes_;
    end_ = image + end * d_.columns.in * pixel_bytes_;
    ++part_;
  }

  const QuantizedConvolution& a_;
  const Division& d_;
  const Chunk next_;
  const int64_t pixel_bytes_;
  bool whole_ = false;
  int64_t parts_ = 0, part_ = 0, lines_ = 0;
  const char *at_ = nullptr, *end_ = nullptr;
};

// Fetches memory into the second-level cache, a few lines at a time.
class FetchAhead {
 public:
  FetchAhead(const void* from, int64_t bytes, int64_t times)
      : at_(static_cast<const char*>(from)), end_(at_ + bytes), step_(divided_up(bytes, larger(times, 1))) {}

  void fetch_some() {
    for (const char* const until = at_ + step_; at_ < until && at_ < end_; at_ += 64) _mm_prefetch(at_, _MM_HINT_T1);
  }

 private:
  const char *at_, *end_;
  int64_t step_;
};

// Where the pixels of a chunk lie that are multiplied.
template <typename Element>
struct Source {
  const Element* pixels;
  int64_t block_step, sample_step, row_step;  // in elements
};

// Makes the sums of a panel for a chunk, tile by tile, and their output.
template <typename Dot, int64_t kPixel, int blocks>
class PanelOfChunk {
 public:
  using Element = typename Dot::Element;

  PanelOfChunk(const QuantizedConvolution& a, const Division& d, const Chunk& chunk, const Source<Element>& source,
               const Multiply<Dot>& multiply, int64_t first_block, NextChunk& next)
      : a_(a), d_(d), chunk_(chunk), source_(source), multiply_(multiply), first_block_(first_block), next_(next) {
    const int64_t terms = d.blocks * kPixel * a.window_pixels();
    const float *const factors = a.factors + first_block * kLanes, *const bias = a.bias + first_block * kLanes;
    if (kWrites && !d.vectors) {
      writes_ = WriteBytes<false>::fits(a.to, factors, bias, blocks * kLanes, terms);
      few_ = terms <= kFewTerms && (kPixel == kLanes ? d.flat : d.blocks == 1);
      adds_ = kAdds && WriteBytes<true>::fits(a.to, factors, bias, blocks * kLanes, terms);
      if (writes_ || adds_) quotients_.set(a.to, factors, bias);
      streams_ = kLanes == 16 && d.flat && !a.clipped && (writes_ || adds_) && a.to.output != a.to.residual &&
                 a.output_shape.pixels() % 4 == 0 && chunk.row * d.columns.out % 4 == 0 &&
                 goes_past_caches<uint8_t>(a.output_shape, a.to.output) &&
                 reinterpret_cast<uintptr_t>(a.to.output) % 64 == 0;
    }
  }

  // For a window of one pixel and all of the chunk's pixels, whose outliers these are.
  void make_clipped(const Outliers& outliers, const int32_t* corrections) const {
    // The weights of so many input blocks stay in the first-level cache, with the sums of a run.
    constexpr int64_t kMostBlocks = 768 / kLanes;
    alignas(64) int32_t sums[Outliers::kMostRun * blocks * kLanes], offsets[blocks * kLanes];
    [[maybe_unused]] bool flags[kMostBlocks];  // of centers
    for (int64_t i = 0; i < blocks * kLanes; ++i) {
      const int64_t o = first_block_ * kLanes + i;
      offsets[i] = a_.offsets[o] + corrections[o];
    }
    const int64_t pixels = chunk_.samples * chunk_.rows * d_.columns.out, run = outliers.run(),
                  parts = divided_up(d_.blocks, kMostBlocks);
    // Outliers meet the next panel's weights first, here and there, which the processor does not foresee.
    const int64_t panel = d_.blocks * kPixel * blocks * kLanes,
                  tiles = divided_up(smaller(pixels, run), kClippedTile<blocks>);
    FetchAhead fetches[] = {{multiply_.weights + panel, panel, tiles},
                            {multiply_.centers + panel / 4, panel / 2, tiles}};
    const bool writes = writes_ || adds_;
    const auto find = [&]([[maybe_unused]] Multiply<Dot>& found) {
#if !defined(TRAINYARD_KERNELS_AVX512)
      found.has_centers = find_centers(found.centers, found.in_blocks, blocks, flags);
#endif
    };
    Multiply<Dot> multiply = multiply_;
    if (parts == 1) find(multiply);
    for (int64_t first = 0; first < pixels; first += run) {
      const int64_t count = smaller(run, pixels - first);
      outliers.begin_sums<blocks>(multiply_.weights, offsets, first / run, sums);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t begin = d_.blocks * part / parts, end = d_.blocks * (part + 1) / parts;
        if (parts > 1) {
          multiply.weights = multiply_.weights + begin * blocks * kLanes * kPixel;
          multiply.centers = multiply_.centers + begin * blocks * kLanes * kPixel / 4;
          multiply.in_blocks = end - begin;
          find(multiply);
        }
        multiply_clipped(multiply, source_.pixels + begin * source_.block_step, first, count,
                         writes && part + 1 == parts, sums, fetches);
      }
      if (!writes) finish_tile(sums, first, count);
    }
  }

  void make() const {
    const int64_t pixels = chunk_.rows * d_.columns.out;
    if (d_.flat && (chunk_.samples == 1 || source_.sample_step == pixels * kPixel)) {
      return make_run(source_.pixels, chunk_.samples * pixels, 0);
    }
    for (int64_t n = 0; n < chunk_.samples; ++n) {
      const Element* const sample = source_.pixels + n * source_.sample_step;
      if (d_.flat) {
        make_run(sample, pixels, n * pixels);
      } else {
        make_rows(sample, n * pixels);
      }
    }
  }

 private:
  // Whether tiles may be written by WriteBytes<false>, and by WriteBytes<true>: not where that is rare, for less code.
  static constexpr bool kWrites = kLanes == 8 || sizeof(Element) == 1,
                        kAdds = kWrites && blocks > 1 && kPixel == kLanes;
  // Whether tiles are computed many at a time: they are small, and calls for each would cost.
  static constexpr bool kLoops = kLanes == 8 && !Dot::kReadsMaps;
  static constexpr int64_t kFewTerms = 64;  // of a sum by pairs; the tile of one call takes less time for more
  static constexpr int64_t kMostOfTile = kQuantizedTile > kClippedTile<blocks> ? kQuantizedTile : kClippedTile<blocks>;

  // Divides a run of pixels, counted from the chunk's first output on: whole(first pixel, tiles) for tiles of `size`
  // that lie in one sample, if `loops`, and some(first pixel, pixels) for others.
  template <typename Whole, typename Some>
  void for_tiles(int64_t first_pixel, int64_t pixels, int64_t size, bool loops, const Whole& whole,
                 const Some& some) const {
    constexpr int64_t kFewest = 4;  // tiles, below which they had better have the same size
    const int64_t in_chunk = chunk_.rows * d_.columns.out, end = first_pixel + pixels;
    for (int64_t p = first_pixel; p < end;) {
      const int64_t of_sample = chunk_.samples == 1 ? end - p : smaller(end - p, in_chunk - p % in_chunk);
      if (loops && of_sample >= kFewest * size) {
        whole(p, of_sample / size);
        p += of_sample / size * size;
        continue;
      }
      const int64_t here = loops ? smaller(end - p, divided_up(of_sample, size) * size) : end - p,
                    tiles = divided_up(here, size);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = here * t / tiles;
        some(p + first, here * (t + 1) / tiles - first);
      }
      p += here;
    }
  }

  void make_run(const Element* from, int64_t pixels, int64_t first_pixel) const {
    const auto source = [&](int64_t pixel) { return from + (pixel - first_pixel) * kPixel; };
    const auto some = [&](int64_t pixel, int64_t count) {
      const auto multiply = [&](const auto& end) {
        if (kPixel == kLanes && d_.flat) {
          return multiply_row<Dot, kPixel, blocks, Terms::kBlocks>(multiply_, count, source(pixel), end);
        }
        multiply_row<Dot, kPixel, blocks, Terms::kBlocksAndPlaces>(multiply_, count, source(pixel), end);
      };
      make_tile(multiply, pixel, count);
    };
    const auto whole = [&](int64_t pixel, int64_t tiles) {
      if constexpr (kLoops) {
        write_tiles(pixel, [&](const auto& end) {
          multiply_tiles<Dot, kPixel, blocks, kPixel == kLanes ? Terms::kBlocks : Terms::kPlaces>(
              multiply_, tiles, source(pixel), [&] { next_.fetch_some(); }, end);
        });
      }
    };
    if (!streams_)
      return for_tiles(first_pixel, pixels, kQuantizedTile, kLoops && few_ && (writes_ || adds_), whole, some);
    constexpr int64_t kWholeLines = kQuantizedTile / 4 * 4;
    for (int64_t p = 0; p < pixels; p += kWholeLines) some(first_pixel + p, smaller(kWholeLines, pixels - p));
  }

  // Adds the products of some input blocks to the sums of a run, and makes outputs of them where `write` is set.
  void multiply_clipped(const Multiply<Dot>& multiply, const Element* source, int64_t first_pixel, int64_t pixels,
                        bool write, int32_t* sums, FetchAhead (&fetches)[2]) const {
    const int64_t step = pixels * kLanes;
    const auto own = [&](int64_t pixel) { return sums + (pixel - first_pixel) * kLanes; };
    const auto fetch = [&] {
      for (FetchAhead& lines : fetches) lines.fetch_some();
    };
    const auto some = [&](int64_t pixel, int64_t count) {
      const auto multiply_tile = [&](const auto& end) {
        multiply_clipped_row<blocks>(multiply, count, source + pixel * kPixel, own(pixel), step, end);
      };
      fetch();
      write ? make_tile(multiply_tile, pixel, count) : multiply_tile(StoreSumsApart{own(pixel), step});
    };
    const auto whole = [&](int64_t pixel, int64_t tiles) {
      if constexpr (kLoops) {
        const auto multiply_all = [&](const auto& begin, const auto& end) {
          multiply_clipped_tiles<blocks>(multiply, tiles, source + pixel * kPixel, own(pixel), step, begin, end);
        };
        if (!write) return multiply_all(fetch, StoreSumsApart{own(pixel), step});
        const auto fetch_both = [&] {
          fetch();
          next_.fetch_some();
        };
        write_tiles(pixel, [&](const auto& end) { multiply_all(fetch_both, end); });
      }
    };
    for_tiles(first_pixel, pixels, kClippedTile<blocks>, kLoops, whole, some);
  }

  // Makes the outputs of `count` pixels, for which multiply(end) calls end(sums).
  template <typename MultiplyTile>
  [[gnu::always_inline]] void make_tile(const MultiplyTile& multiply, int64_t first_pixel, int64_t count) const {
    next_.fetch_some();
    if constexpr (kWrites) {
      if (writes_ && write_tile<false>(multiply, first_pixel, count)) return;
    }
    if constexpr (kAdds) {
      if (adds_ && write_tile<true>(multiply, first_pixel, count)) return;
    }
    int32_t sums[blocks * kMostOfTile * kLanes];
    multiply(StoreSums{sums});
    finish_tile(sums, first_pixel, count);
  }

  void make_rows(const Element* from, int64_t first_pixel) const {
    const int64_t width = d_.columns.out;
    for (int64_t y = 0; y < chunk_.rows; ++y) {
      const Element* const row = from + y * source_.row_step;
      if (width > kQuantizedTile / 2 || y + 1 == chunk_.rows) {
        make_run(row, width, first_pixel + y * width);
        continue;
      }
      next_.fetch_some();
      int32_t sums[blocks * kQuantizedTile * kLanes];
      multiply_two_rows<Dot, kPixel, blocks>(multiply_, width, row, source_.row_step, StoreSums{sums});
      finish_tile(sums, first_pixel + y * width, 2 * width);
      ++y;
    }
  }

  // Returns the element of the output where a pixel begins, in the panel's block v.
  int64_t element(int64_t n, int64_t pixel, int64_t v) const {
    const MapShape& out = a_.output_shape;
    const int64_t plane = (chunk_.sample + n) * out.blocks() + first_block_ + v;
    return (plane * out.pixels() + chunk_.row * d_.columns.out + pixel) * kLanes;
  }

  // Returns false, without doing anything, for a tile that reaches into another sample.
  template <bool residual, typename MultiplyTile>
  bool write_tile(const MultiplyTile& multiply, int64_t first_pixel, int64_t count) const {
    const int64_t in_chunk = chunk_.rows * d_.columns.out, n = chunk_.samples == 1 ? 0 : first_pixel / in_chunk;
    const int64_t pixel = first_pixel - n * in_chunk;
    if (pixel + count > in_chunk) return false;
    multiply(bytes_from<residual>(n, pixel));
    return true;
  }

  // Calls multiply(end) with what writes the bytes of tiles from a pixel on, which lie in one sample.
  template <typename MultiplyTiles>
  void write_tiles(int64_t first_pixel, const MultiplyTiles& multiply) const {
    const int64_t in_chunk = chunk_.rows * d_.columns.out, n = first_pixel / in_chunk, pixel = first_pixel % in_chunk;
    if constexpr (kAdds) {
      if (adds_) return multiply(bytes_from<true>(n, pixel));
    }
    multiply(bytes_from<false>(n, pixel));
  }

  template <bool residual>
  WriteBytes<residual> bytes_from(int64_t n, int64_t pixel) const {
    WriteBytes<residual> end(a_.to, quotients_.factors, quotients_.bias, a_.output_shape.pixels() * kLanes, streams_);
    end.output += element(n, pixel, 0);
    if (residual) end.added += element(n, pixel, 0);
    return end;
  }

  void finish_tile(int32_t* sums, int64_t first_pixel, int64_t count) const {
    const int64_t in_chunk = chunk_.rows * d_.columns.out;
    for (int v = 0; v < blocks; ++v) {
      const int64_t block = first_block_ + v;
      const Finish f{.to = a_.to,
                     .factor = load(a_.factors + block * kLanes),
                     .bias = load(a_.bias + block * kLanes),
                     .lanes = channel_lanes(a_.output_shape, block)};
      int32_t* const own = sums + v * count * kLanes;
      if (d_.vectors) {
        for (int64_t p = 0; p < count; ++p) finish_vector(block, own + p * kLanes, chunk_.sample + first_pixel + p);
        continue;
      }
      for (int64_t p = 0; p < count;) {
        // Up to the end of the sample.
        const int64_t n = (first_pixel + p) / in_chunk, pixel = (first_pixel + p) % in_chunk,
                      here = smaller(count - p, in_chunk - pixel);
        finish(f, own + p * kLanes, here, element(n, pixel, v));
        p += here;
      }
    }
  }

  // Rows of vectors may end within a block, so the block is made elsewhere and copied.
  void finish_vector(int64_t block, int32_t* sums, int64_t n) const {
    const int64_t channels = a_.output_shape.channels, at = n * channels + block * kLanes,
                  lanes = smaller(kLanes, channels - block * kLanes);
    float made[kLanes], residual[kLanes] = {};
    QuantizedOutput to = a_.to;
    to.output = made;
    const int64_t size = size_of(to.dtype), residual_size = size_of(to.residual_dtype);
    if (to.residual != nullptr) {
      __builtin_memcpy(residual, static_cast<const uint8_t*>(to.residual) + at * residual_size,
                       static_cast<size_t>(lanes * residual_size));
      to.residual = residual;
    }
    const Finish f{.to = to,
                   .factor = load(a_.factors + block * kLanes),
                   .bias = load(a_.bias + block * kLanes),
                   .lanes = channel_lanes(a_.output_shape, block)};
    finish(f, sums, 1, 0);
    __builtin_memcpy(static_cast<uint8_t*>(a_.to.output) + at * size, made, static_cast<size_t>(lanes * size));
  }

  const QuantizedConvolution& a_;
  const Division& d_;
  const Chunk& chunk_;
  const Source<Element>& source_;
  const Multiply<Dot> multiply_;
  int64_t first_block_;
  NextChunk& next_;
  bool streams_ = false;
  bool writes_ = false, adds_ = false;  // by WriteBytes<false>, <true>
  bool few_ = false;                    // products
  FactorsOfQuotients<blocks * kLanes> quotients_;
};

// Returns the chunk of a task; one without samples behind the last.
Chunk chunk_of(const Division& d, int64_t task) {
  const int64_t index = task / d.parts, rows = index % d.row_groups, group = index / d.row_groups;
  if (group == d.sample_groups) return {};
  Chunk chunk{};
  chunk.sample = d.batch * group / d.sample_groups;
  chunk.samples = d.batch * (group + 1) / d.sample_groups - chunk.sample;
  chunk.row = d.rows.out * rows / d.row_groups;
  chunk.rows = d.rows.out * (rows + 1) / d.row_groups - chunk.row;
  return chunk;
}

template <int count>
struct BlockCount {
  static constexpr int kValue = count;
};

// Calls make(first block, its BlockCount) for the panels of a task.
template <typename Make>
void for_panels(const QuantizedConvolution& a, const Division& d, int64_t task, const Make& make) {
  const int64_t part = task % d.parts, begin = d.panels * part / d.parts, end = d.panels * (part + 1) / d.parts;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = panel * kQuantizedPanelBlocks;
    if (a.output_shape.blocks() - first >= kQuantizedPanelBlocks) {
      make(first, BlockCount<kQuantizedPanelBlocks>());
    } else {
      make(first, BlockCount<1>());
    }
  }
}

// Returns a source that is a copy of a chunk's input.
template <typename Element, int64_t kPixel>
Source<Element> copied_source(const Division& d, const Chunk& chunk, const Element* copy) {
  const int64_t sample = d.vectors ? 1 : d.sample_pixels(chunk.rows);
  return {.pixels = copy,
          .block_step = chunk.samples * sample * kPixel,
          .sample_step = sample * kPixel,
          .row_step = d.row_pixels() * kPixel};
}

NextChunk next_chunk(const QuantizedConvolution& a, const Division& d, int64_t task, int64_t end_task, int64_t pixel) {
  const Chunk chunk = chunk_of(d, task);
  const int64_t next_task = (task / d.parts + 1) * d.parts, panels = divided_up(d.panels, d.parts);
  return {a, d, next_task < end_task ? chunk_of(d, next_task) : Chunk{}, pixel,
          chunk.samples * chunk.rows * d.columns.out * panels / kQuantizedTile};
}

template <typename Dot, int64_t kPixel>
void make_task(const QuantizedConvolution& a, const Division& d, int64_t task, int64_t end_task, const int64_t* places,
               uint8_t* scratch) {
  using Element = typename Dot::Element;
  const Chunk chunk = chunk_of(d, task);
  NextChunk next = next_chunk(a, d, task, end_task, kPixel);
  Source<Element> source{};
  if constexpr (Dot::kReadsMaps) {
    const int64_t pixels = d.rows.in;
    source = {.pixels = a.input + (chunk.sample * d.blocks * pixels + chunk.row) * kPixel,
              .block_step = pixels * kPixel,
              .sample_step = d.blocks * pixels * kPixel,
              .row_step = kPixel};
  }
  if (!d.direct) {
    auto* const copy = reinterpret_cast<Element*>(scratch);
    copy_chunk<Dot, kPixel>(a, d, chunk, copy);
    source = copied_source<Element, kPixel>(d, chunk, copy);
  }
  const int64_t terms = d.blocks * kPixel * a.window_pixels();
  for_panels(a, d, task, [&](int64_t first, auto blocks) {
    const Multiply<Dot> multiply = {
        .weights = reinterpret_cast<const typename Dot::Weight*>(a.weights) + first * kLanes * terms,
        .in_blocks = d.blocks,
        .block_step = source.block_step,
        .places = places,
        .window = a.window_pixels(),
        .offsets = a.offsets + first * kLanes};
    PanelOfChunk<Dot, kPixel, blocks.kValue>(a, d, chunk, source, multiply, first, next).make();
  });
}

// The same with clipped activations, or pairs where a chunk has many outliers.
void make_clipped_task(const QuantizedConvolution& a, const Division& d, int64_t task, int64_t end_task,
                       const int64_t* places, uint8_t* scratch) {
  const Chunk chunk = chunk_of(d, task);
  NextChunk next = next_chunk(a, d, task, end_task, kLanes);
  const ClippedWeights packed(a, const_cast<int8_t*>(a.weights));
  const int64_t pixels = chunk.samples * chunk.rows * d.columns.out, terms = d.blocks * kLanes;
  copy_chunk<DotOfClipped, kLanes>(a, d, chunk, scratch);
  Outliers outliers(scratch + whole_lines(pixels * terms), pixels, d.blocks);
  if (outliers.clip(scratch, first_of_near(a.input_zero))) {
    const auto source = copied_source<uint8_t, kLanes>(d, chunk, scratch);
    return for_panels(a, d, task, [&](int64_t first, auto blocks) {
      const Multiply<DotOfClipped> multiply = {.weights = packed.weights + first * kLanes * terms,
                                               .centers = packed.centers + first * kLanes * terms / 4,
                                               .in_blocks = d.blocks,
                                               .block_step = source.block_step,
                                               .has_centers = nullptr};
      PanelOfChunk<DotOfClipped, kLanes, blocks.kValue>(a, d, chunk, source, multiply, first, next)
          .make_clipped(outliers, packed.corrections);
    });
  }
  auto* const pairs = reinterpret_cast<int16_t*>(scratch);
  auto* const weights = pairs + whole_lines(2 * pixels * terms) / 2;
  copy_chunk<DotOfPairs, kLanes>(a, d, chunk, pairs);
  const auto source = copied_source<int16_t, kLanes>(d, chunk, pairs);
  for_panels(a, d, task, [&](int64_t first, auto blocks) {
    widen_weights(packed.weights + first * kLanes * terms, terms / DotOfClipped::kInWord, blocks.kValue, weights);
    const Multiply<DotOfPairs> multiply = {.weights = weights,
                                           .in_blocks = d.blocks,
                                           .block_step = source.block_step,
                                           .places = places,
                                           .window = 1,
                                           .offsets = a.offsets + first * kLanes};
    PanelOfChunk<DotOfPairs, kLanes, blocks.kValue>(a, d, chunk, source, multiply, first, next).make();
  });
}

template <typename Dot, int64_t kPixel>
void convolve(const QuantizedConvolution& a) {
  const Division d = divide<Dot>(a);
  // Places count rows of phases, of which the chunks have two numbers of rows at most.
  const int64_t bytes = source_bytes<Dot>(a, d), table = place_bytes(a);
  auto* const memory = static_cast<uint8_t*>(a.scratch);
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    auto* const own = memory + thread * thread_stride(bytes + table);
    auto* const places = reinterpret_cast<int64_t*>(own);
    int64_t places_for = -1;
    const int64_t end = d.tasks() * (thread + 1) / threads;
    for (int64_t task = d.tasks() * thread / threads; task < end; ++task) {
      const int64_t group = task / d.parts % d.row_groups;
      const int64_t rows = d.rows.out * (group + 1) / d.row_groups - d.rows.out * group / d.row_groups;
      if (rows != places_for) {
        places_for = rows;
        for (int64_t k = 0; k < a.window_pixels(); ++k) {
          const int64_t y = k / a.window.kernel_width, x = k % a.window.kernel_width;
          const int64_t row = d.rows.phase(y) * d.phase_rows(rows) + d.rows.shift(y);
          const int64_t columns = d.columns.length(d.columns.out);
          places[k] = (row * d.row_pixels() + d.columns.phase(x) * columns + d.columns.shift(x)) * kPixel;
        }
      }
      if constexpr (__is_same(Dot, DotOfClipped)) {
        make_clipped_task(a, d, task, end, places, own + table);
      } else {
        make_task<Dot, kPixel>(a, d, task, end, places, own + table);
      }
    }
    _mm_sfence();  // of stores past the caches
  }
}

template <typename Dot>
int64_t scratch_bytes(const QuantizedConvolution& a) {
  return thread_scratch_bytes(source_bytes<Dot>(a, divide<Dot>(a)) + place_bytes(a), a.threads);
}

}  // namespace

int64_t quantized_convolution_scratch_bytes(const QuantizedConvolution& a) {
  if (a.winograd) return quantized_winograd_scratch_bytes(a);
  if (a.clipped) return scratch_bytes<DotOfClipped>(a);
  return a.vnni ? scratch_bytes<DotOfBytes>(a) : scratch_bytes<DotOfPairs>(a);
}

void quantized_convolution(const QuantizedConvolution& a) {
  if (a.winograd) return quantized_winograd(a);
  if (a.clipped) return convolve<DotOfClipped, kLanes>(a);
  if (a.input_shape.block == 4) {
    a.vnni ? convolve<DotOfBytes, 4>(a) : convolve<DotOfPairs, 4>(a);
  } else {
    a.vnni ? convolve<DotOfBytes, kLanes>(a) : convolve<DotOfPairs, kLanes>(a);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
