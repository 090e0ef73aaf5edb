// Grouped and depthwise convolution of bytes. Each row of the input is turned into quads once, and then multiplied for
// all rows of windows that cover it.
#include <omp.h>

#include "trainyard/nn/cpu/quantized/grouped_quads.h"
#include "trainyard/nn/cpu/quantized/split_depthwise.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

constexpr int64_t kRowsAPart = 16;  // rows of a block that make one piece of work
constexpr int64_t kTile = QuantizedGroupedShape::kTile;

// How lanes get their quads: from pixels of their channel, from channels that differ from lane to lane, or all the
// same.
enum class Quads { kOfPixels, kOfLanes, kShared };

// A thread's memory, and the rows of quads in it. Row r is stored at r modulo the number of rows that are kept, until
// another replaces it.
template <typename Dot, Quads kind>
class QuadRows {
 public:
  explicit QuadRows(const QuantizedGroupedConvolution& a)
      : a_(a), blocks_(a.input_blocks()), kept_(a.kept_rows()), row_bytes_(a.row_bytes()) {
    bytes_ = static_cast<uint8_t*>(a.scratch) + omp_get_thread_num() * thread_stride(a.thread_scratch());
    held_ = reinterpret_cast<int64_t*>(bytes_ + kept_ * blocks_ * row_bytes_);
    lines_ = reinterpret_cast<const uint8_t**>(held_ + kept_ * blocks_);
    if constexpr (kind == Quads::kOfLanes) {
      for (int64_t v = 0; v < a.channel_quads(); ++v) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          words_[v][lane] = static_cast<int32_t>(first_of_quad(a, lane, v) / 4);
        }
      }
    }
    if constexpr (kind == Quads::kOfPixels) measure_pieces();
  }

  // Drops all rows, for another image.
  void invalidate() {
    for (int64_t i = 0; i < kept_ * blocks_; ++i) held_[i] = kNoRow;
  }
  // Returns row `row` of `image`, the i-th block that is read; a row outside of the image is all padding. `slot` is the
  // row modulo the number of rows that are kept.
  const uint8_t* get(const uint8_t* image, int64_t i, int64_t row, int64_t slot) {
    const int64_t place = slot * blocks_ + i;
    uint8_t* const begin = bytes_ + place * row_bytes_;
    if (held_[place] != row) {
      convert(image, row, begin);
      held_[place] = row;
    }
    return begin;
  }
  // Returns space for the rows of a window, of each block that is read.
  const uint8_t** lines() const { return lines_; }

 private:
  static constexpr int64_t kNoRow = INT64_MIN;

  void convert(const uint8_t* image, int64_t row, uint8_t* to) const {
    const bool inside = row >= 0 && row < a_.input_shape.height;
    const uint8_t* const pixels = inside ? image + row * a_.input_shape.width * kLanes : nullptr;
    if constexpr (kind == Quads::kOfPixels) {
      inside ? pixel_quads(pixels, to) : padding_quads(to, pieces_ * quads_);
    } else if constexpr (kind == Quads::kOfLanes) {
      inside ? lane_quads(pixels, to) : padding_quads(to, a_.row_pixels() * a_.channel_quads());
    } else {
      shared_quads(pixels, to);
    }
  }

  void padding_quads(uint8_t* to, int64_t count) const {
    const Ints padding = fill_ints(a_.input_zero * 0x01010101);
    for (int64_t i = 0; i < count; ++i, to += kParts<Dot> * kQuadLanes) store_quads<Dot>(to, padding);
  }
  // Returns whether column `x` of the padded row is one of the image.
  [[gnu::always_inline]] bool is_inside(int64_t x) const {
    return x >= a_.window.left && x < a_.window.left + a_.input_shape.width;
  }
  // Pieces beyond the end of the row stay unwritten: what is computed from them is not used.
  void measure_pieces() {
    const int64_t outputs = a_.piece_outputs(), room = a_.window.left + a_.input_shape.width - 4 * a_.piece_quads();
    quads_ = a_.piece_quads();
    step_ = outputs * a_.window.stride_width;
    pieces_ = (a_.output_shape.width + outputs - 1) / outputs;
    first_ = smaller(pieces_, (a_.window.left + step_ - 1) / step_);
    last_ = a_.dilation_width > 1 || room < 0 ? first_ : larger(first_, smaller(pieces_, room / step_ + 1));
  }
  void pixel_quads(const uint8_t* row, uint8_t* to) const {
    constexpr int64_t kQuad = kParts<Dot> * kQuadLanes;
    const int64_t quads = quads_, from_step = step_ * kLanes, into_step = quads * kQuad, first = first_, last = last_;
    for (int64_t j = 0; j < quads; ++j) {
      const uint8_t* from = row + (first * step_ + 4 * j - a_.window.left) * kLanes;
      uint8_t* into = to + (first * quads + j) * kQuad;
      for (int64_t g = first; g < last; ++g, from += from_step, into += into_step) {
        store_quads<Dot>(into, load_pixel_quads(from));
      }
    }
    border_quads(row, 0, first, to);
    border_quads(row, last, pieces_, to + last * into_step);
  }
  // Writes pieces [first, last), of which some pixels may be padding.
  void border_quads(const uint8_t* row, int64_t first, int64_t last, uint8_t* to) const {
    for (int64_t g = first; g < last; ++g) {
      for (int64_t j = 0; j < quads_; ++j, to += kParts<Dot> * kQuadLanes) {
        const int64_t x = g * step_ + 4 * j * a_.dilation_width - a_.window.left;
        store_quads<Dot>(to, a_.dilation_width == 1 ? border_quad(row, x) : quads_apart(row, x));
      }
    }
  }
  // Returns the quads of four neighbours from column `x` of the image on.
  [[gnu::always_inline]] Ints border_quad(const uint8_t* row, int64_t x) const {
    const int64_t first = smaller(4, larger(0, -x)), last = larger(first, smaller(4, a_.input_shape.width - x));
    return load_some_pixel_quads(row + x * kLanes, first, last, fill_ints(a_.input_zero * 0x01010101));
  }
  // The same for pixels that are `dilation_width` apart.
  Ints quads_apart(const uint8_t* row, int64_t x) const {
    uint8_t pixels[kQuadLanes];
    for (int64_t i = 0; i < 4; ++i, x += a_.dilation_width) {
      if (x >= 0 && x < a_.input_shape.width) {
        __builtin_memcpy(pixels + i * kLanes, row + x * kLanes, kLanes);
      } else {
        __builtin_memset(pixels + i * kLanes, a_.input_zero, kLanes);
      }
    }
    return load_pixel_quads(pixels);
  }
  void lane_quads(const uint8_t* row, uint8_t* to) const {
    const int64_t pixels = a_.row_pixels(), quads = a_.channel_quads();
    for (int64_t x = 0; x < pixels; ++x, to += quads * kParts<Dot> * kQuadLanes) {
      if (!is_inside(x)) {
        padding_quads(to, quads);
        continue;
      }
      for (int64_t v = 0; v < quads; ++v) {
        store_quads<Dot>(to + v * kParts<Dot> * kQuadLanes,
                         load_channel_quads(row + (x - a_.window.left) * kLanes, words_[v]));
      }
    }
  }
  // A null `row` is all padding.
  void shared_quads(const uint8_t* row, uint8_t* to) const {
    const int64_t pixels = a_.row_pixels();
    uint8_t padding[kLanes];
    __builtin_memset(padding, a_.input_zero, kLanes);
    for (int64_t x = 0; x < pixels; ++x, to += kParts<Dot> * kLanes) {
      const uint8_t* const from = row != nullptr && is_inside(x) ? row + (x - a_.window.left) * kLanes : padding;
      if constexpr (kParts<Dot> == 1) {
        __builtin_memcpy(to, from, kLanes);
      } else {
        for (int64_t c = 0; c < kLanes; c += 2) {
          const uint16_t even = from[c], odd = from[c + 1];
          __builtin_memcpy(to + c, &even, 2);
          __builtin_memcpy(to + kLanes + c, &odd, 2);
        }
      }
    }
  }

  const QuantizedGroupedConvolution& a_;
  int64_t blocks_, kept_, row_bytes_;
  // Depthwise: the pieces of a row, of which [first_, last_) read pixels of the image only, the quads of a piece, and
  // the pixels from one to the next.
  int64_t pieces_ = 0, first_ = 0, last_ = 0, quads_ = 0, step_ = 0;
  uint8_t* bytes_;
  int64_t* held_;
  const uint8_t** lines_;
  Ints words_[kind == Quads::kOfLanes ? kLanes / 4 : 1];
};

// Computes kTile neighbours at most: `pieces` pieces from `piece` on, of `outputs` outputs each. The rows of the window
// and the quads of a piece may be known when compiling; 0: not known.
template <typename Dot, int outputs, int pieces, int known_rows, int known_quads>
[[gnu::always_inline]] inline void add_pieces(const QuantizedGroupedConvolution& a, const uint8_t* const* lines,
                                              int64_t piece, const uint8_t* weights, Ints (&sums)[pieces * outputs]) {
  constexpr int64_t kQuad = kParts<Dot> * kQuadLanes;
  const int64_t quads = known_quads > 0 ? known_quads : a.piece_quads();
  const int64_t height = known_rows > 0 ? known_rows : a.window.kernel_height;
#pragma GCC unroll 3
  for (int64_t ky = 0; ky < height; ++ky) {
    const uint8_t* row = lines[ky] + piece * quads * kQuad;
    for (int64_t j = 0; j < quads; ++j, row += kQuad) {
#pragma GCC unroll 2
      for (int64_t part = 0; part < kParts<Dot>; ++part) {
        Ints weight[outputs];
#pragma GCC unroll 4
        for (int u = 0; u < outputs; ++u) weight[u] = load_ints(weights + u * kQuad + part * kQuadLanes);
#pragma GCC unroll 8
        for (int g = 0; g < pieces; ++g) {
          const Ints quad = load_ints(row + g * quads * kQuad + part * kQuadLanes);
#pragma GCC unroll 4
          for (int u = 0; u < outputs; ++u) {
            sums[g * outputs + u] = Dot::add(sums[g * outputs + u], quad, weight[u]);
          }
        }
      }
      weights += outputs * kQuad;
    }
  }
}

// Computes kTile neighbours from pixel `x` on, of which each reads channels of its group in each pixel of its window.
template <typename Dot, Quads kind>
[[gnu::always_inline]] inline void add_channels(const QuantizedGroupedConvolution& a, const uint8_t* const* lines,
                                                int64_t blocks, int64_t x, const uint8_t* weights,
                                                Ints (&sums)[kTile]) {
  constexpr int64_t kQuad = kParts<Dot> * kQuadLanes;
  const int64_t quads = a.channel_quads(), height = a.window.kernel_height, width = a.window.kernel_width;
  const int64_t pixel = kind == Quads::kOfLanes ? quads * kQuad : kParts<Dot> * kLanes;
  const int64_t step = a.window.stride_width * pixel;
  for (int64_t line = 0; line < blocks * height; ++line) {
    for (int64_t kx = 0; kx < width; ++kx) {
      const uint8_t* const from = lines[line] + x * step + kx * a.dilation_width * pixel;
      for (int64_t v = 0; v < quads; ++v, weights += kQuad) {
#pragma GCC unroll 2
        for (int64_t part = 0; part < kParts<Dot>; ++part) {
          const Ints weight = load_ints(weights + part * kQuadLanes);
#pragma GCC unroll 8
          for (int u = 0; u < kTile; ++u) {
            const Ints quad = kind == Quads::kOfLanes ? load_ints(from + u * step + v * kQuad + part * kQuadLanes)
                                                      : fill_word(from + u * step + v * 4 + part * kLanes);
            sums[u] = Dot::add(sums[u], quad, weight);
          }
        }
      }
    }
  }
}

// Computes rows of one block of one sample. `pieces` pieces of `outputs` outputs are computed at a time.
template <typename Dot, Quads kind, int outputs, int pieces, int known_rows, int known_quads, typename Output>
class Worker {
 public:
  Worker(const QuantizedGroupedConvolution& a, const Output& output)
      : a_(a), output_(output), block_weights_(a.weight_bytes()), rows_(a) {}

  void run(int64_t sample, int64_t block, int64_t first, int64_t last) {
    const GroupedConvolution::Blocks from = a_.inputs_of(block);
    const int64_t image = a_.input_shape.pixels() * kLanes, height = a_.window.kernel_height;
    const uint8_t* const images = a_.input + (sample * a_.input_shape.blocks() + from.first) * image;
    const int64_t kept = a_.kept_rows();
    rows_.invalidate();
    for (int64_t y = first; y < last; ++y) {
      // A row's distance from the top padding, which is not negative, decides where it is kept.
      int64_t padded = y * a_.window.stride_height, slot = padded % kept;
      for (int64_t ky = 0; ky < height; ++ky, padded += a_.dilation_height) {
        for (int64_t i = 0; i < from.count; ++i) {
          rows_.lines()[i * height + ky] = rows_.get(images + i * image, i, padded - a_.window.top, slot);
        }
        slot += a_.dilation_height;
        if (slot >= kept) slot -= kept;
      }
      compute_row(sample, block, y, from.count);
    }
  }

 private:
  // Writes the first `wanted` of `count` outputs, or all.
  template <int count>
  [[gnu::always_inline]] static void write(const Output& output, int64_t at, int64_t wanted, const Ints (&sums)[count],
                                           Floats factor, Floats bias, Bits lanes) {
#pragma GCC unroll 2
    for (int u = 0; u < count; u += 4) {
      if (u >= wanted) return;
      Floats values[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) values[k] = multiply_add(to_floats(sums[u + k < count ? u + k : u]), factor, bias);
      output.put_products(at + u * kLanes, values, smaller(smaller(4, count - u), wanted - u), lanes);
    }
  }

  void compute_row(int64_t sample, int64_t block, int64_t y, int64_t input_blocks) const {
    const MapShape& shape = a_.output_shape;
    const int64_t begin = ((sample * shape.blocks() + block) * shape.height + y) * shape.width * kLanes;
    const auto* const weights = reinterpret_cast<const uint8_t*>(a_.weights) + block * block_weights_;
    const Ints offset = load_ints(a_.offsets + block * kLanes);
    const Floats factor = Output::factor(a_.to, a_.factors + block * kLanes),
                 bias = Output::factor(a_.to, a_.bias + block * kLanes);
    const Bits lanes = channel_lanes(shape, block);
    const Output output = output_;  // whose constants stay in registers
    for (int64_t x = 0; x < shape.width; x += pieces * outputs) {
      Ints sums[pieces * outputs];
#pragma GCC unroll 8
      for (int u = 0; u < pieces * outputs; ++u) sums[u] = offset;
      if constexpr (kind == Quads::kOfPixels) {
        add_pieces<Dot, outputs, pieces, known_rows, known_quads>(a_, rows_.lines(), x / outputs, weights, sums);
      } else {
        add_channels<Dot, kind>(a_, rows_.lines(), input_blocks, x, weights, sums);
      }
      const int64_t to = begin + x * kLanes;
      write<pieces * outputs>(output, to, shape.width - x, sums, factor, bias, lanes);
    }
  }

  const QuantizedGroupedConvolution& a_;
  const Output& output_;
  int64_t block_weights_;  // bytes
  QuadRows<Dot, kind> rows_;
};

// Calls the run() of each thread's worker, which make_worker(output) returns, for parts of the blocks of samples.
template <typename MakeWorker>
void run_workers(const QuantizedGroupedConvolution& a, const MakeWorker& make_worker) {
  const int64_t rows = a.output_shape.height, parts = (rows + kRowsAPart - 1) / kRowsAPart;
  with_output(a.to, [&](const auto& output) {
#pragma omp parallel num_threads(a.threads)
    {
      auto worker = make_worker(output);
#pragma omp for collapse(3) schedule(static)
      for (int64_t n = 0; n < a.output_shape.batch; ++n) {
        for (int64_t b = 0; b < a.output_shape.blocks(); ++b) {
          for (int64_t part = 0; part < parts; ++part) {
            worker.run(n, b, part * kRowsAPart, smaller(rows, (part + 1) * kRowsAPart));
          }
        }
      }
    }
  });
}

template <typename Dot, Quads kind, int outputs, int pieces, int known_rows = 0, int known_quads = 0>
void run(const QuantizedGroupedConvolution& a) {
  run_workers(a, [&]<typename Output>(const Output& output) {
    return Worker<Dot, kind, outputs, pieces, known_rows, known_quads, Output>(a, output);
  });
}

#if !defined(TRAINYARD_KERNELS_AVX512)
template <int stride>
void run_split(const QuantizedGroupedConvolution& a) {
  run_workers(a, [&]<typename Output>(const Output& output) { return SplitWorker<stride, Output>(a, output); });
}
#endif

template <typename Dot>
void convolve(const QuantizedGroupedConvolution& a) {
  if (!a.is_depthwise()) {
    return a.fills_lanes() ? run<Dot, Quads::kOfLanes, 1, kTile>(a) : run<Dot, Quads::kShared, 1, kTile>(a);
  }
  const int64_t outputs = a.piece_outputs();
  if (a.window.kernel_height == 3 && a.piece_quads() == 1) {
    if (outputs == 1) return run<Dot, Quads::kOfPixels, 1, kTile, 3, 1>(a);
    if (outputs == 2) return run<Dot, Quads::kOfPixels, 2, 4, 3, 1>(a);
  }
  if (outputs == 1) return run<Dot, Quads::kOfPixels, 1, kTile>(a);
  if (outputs == 2) return run<Dot, Quads::kOfPixels, 2, 4>(a);
  outputs == 3 ? run<Dot, Quads::kOfPixels, 3, 2>(a) : run<Dot, Quads::kOfPixels, 4, 2>(a);
}

}  // namespace

void quantized_grouped_convolution(const QuantizedGroupedConvolution& a) {
#if !defined(TRAINYARD_KERNELS_AVX512)
  if (a.splits()) return a.window.stride_width == 1 ? run_split<1>(a) : run_split<2>(a);
#endif
  a.vnni ? convolve<DotOfBytes>(a) : convolve<DotOfPairs>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
