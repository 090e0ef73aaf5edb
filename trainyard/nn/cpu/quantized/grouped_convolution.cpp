// Grouped and depthwise convolution of bytes. Each row of the input is turned into quads once, and then multiplied for
// all rows of windows that cover it.
#include <omp.h>

#include "trainyard/nn/cpu/quantized/grouped_quads.h"

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
  explicit QuadRows(const QuantizedGroupedConvolution& a) : a_(a), blocks_(a.input_blocks()), kept_(a.kept_rows()) {
    bytes_ = static_cast<uint8_t*>(a.scratch) + omp_get_thread_num() * a.thread_scratch();
    held_ = reinterpret_cast<int64_t*>(bytes_ + kept_ * blocks_ * a.row_bytes());
    lines_ = reinterpret_cast<const uint8_t**>(held_ + kept_ * blocks_);
    raw_ = reinterpret_cast<uint8_t*>(lines_ + kept_ * blocks_);
    __builtin_memset(raw_, a.input_zero, static_cast<decltype(sizeof(0))>(a.row_pixels() * kLanes));
    if constexpr (kind == Quads::kOfLanes) {
      for (int64_t v = 0; v < a.channel_quads(); ++v) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          words_[v][lane] = static_cast<int32_t>(first_of_quad(a, lane, v) / 4);
        }
      }
    }
  }

  // Drops all rows, for another image.
  void invalidate() {
    for (int64_t i = 0; i < kept_ * blocks_; ++i) held_[i] = kNoRow;
  }
  // Returns row `row` of `image`, the i-th block that is read; a row outside of the image is all padding.
  const uint8_t* get(const uint8_t* image, int64_t i, int64_t row) {
    const int64_t place = (row % kept_ + kept_) % kept_ * blocks_ + i;
    uint8_t* const begin = bytes_ + place * a_.row_bytes();
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

  void convert(const uint8_t* image, int64_t row, uint8_t* to) {
    const auto bytes = static_cast<decltype(sizeof(0))>(a_.input_shape.width * kLanes);
    uint8_t* const inner = raw_ + a_.window.left * kLanes;
    if (row >= 0 && row < a_.input_shape.height) {
      __builtin_memcpy(inner, image + row * a_.input_shape.width * kLanes, bytes);
    } else {
      __builtin_memset(inner, a_.input_zero, bytes);
    }
    if constexpr (kind == Quads::kOfPixels) {
      pixel_quads(to);
    } else if constexpr (kind == Quads::kOfLanes) {
      lane_quads(to);
    } else {
      shared_quads(to);
    }
  }

  void pixel_quads(uint8_t* to) const {
    const int64_t pieces = a_.row_pieces(), quads = a_.piece_quads(), dilation = a_.dilation_width;
    const int64_t step = a_.piece_outputs() * a_.window.stride_width * kLanes;
    for (int64_t g = 0; g < pieces; ++g) {
      for (int64_t j = 0; j < quads; ++j, to += kParts<Dot> * kQuadLanes) {
        const uint8_t* const first = raw_ + g * step + 4 * j * dilation * kLanes;
        if (dilation == 1) {
          store_quads<Dot>(to, load_pixel_quads(first));
        } else {
          uint8_t apart[kQuadLanes];
          for (int64_t i = 0; i < 4; ++i) __builtin_memcpy(apart + i * kLanes, first + i * dilation * kLanes, kLanes);
          store_quads<Dot>(to, load_pixel_quads(apart));
        }
      }
    }
  }
  void lane_quads(uint8_t* to) const {
    const int64_t pixels = a_.row_pixels(), quads = a_.channel_quads();
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t v = 0; v < quads; ++v, to += kParts<Dot> * kQuadLanes) {
        store_quads<Dot>(to, load_channel_quads(raw_ + p * kLanes, words_[v]));
      }
    }
  }
  void shared_quads(uint8_t* to) const {
    const int64_t pixels = a_.row_pixels();
    if constexpr (kParts<Dot> == 1) {
      __builtin_memcpy(to, raw_, static_cast<decltype(sizeof(0))>(pixels * kLanes));
    } else {
      for (int64_t p = 0; p < pixels; ++p, to += 2 * kLanes) {
        for (int64_t c = 0; c < kLanes; c += 2) {
          const uint16_t even = raw_[p * kLanes + c], odd = raw_[p * kLanes + c + 1];
          __builtin_memcpy(to + c, &even, 2);
          __builtin_memcpy(to + kLanes + c, &odd, 2);
        }
      }
    }
  }

  const QuantizedGroupedConvolution& a_;
  int64_t blocks_, kept_;
  uint8_t* bytes_;
  int64_t* held_;
  const uint8_t** lines_;
  uint8_t* raw_;
  Ints words_[kind == Quads::kOfLanes ? kLanes / 4 : 1];
};

// Computes kTile neighbours at most: pieces [piece, piece + count), of `outputs` outputs each.
template <typename Dot, int outputs, int pieces>
[[gnu::always_inline]] inline void add_pieces(const QuantizedGroupedConvolution& a, const uint8_t* const* lines,
                                              int64_t piece, const uint8_t* weights, Ints (&sums)[pieces * outputs]) {
  constexpr int64_t kQuad = kParts<Dot> * kQuadLanes;
  const int64_t quads = a.piece_quads(), height = a.window.kernel_height;
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
template <typename Dot, Quads kind, int outputs, int pieces, typename Output>
class Worker {
 public:
  Worker(const QuantizedGroupedConvolution& a, const Output& output) : a_(a), output_(output), rows_(a) {}

  void run(int64_t sample, int64_t block, int64_t first, int64_t last) {
    const GroupedConvolution::Blocks from = a_.inputs_of(block);
    const int64_t image = a_.input_shape.pixels() * kLanes, height = a_.window.kernel_height;
    const uint8_t* const images = a_.input + (sample * a_.input_shape.blocks() + from.first) * image;
    rows_.invalidate();
    for (int64_t y = first; y < last; ++y) {
      for (int64_t i = 0; i < from.count; ++i) {
        for (int64_t ky = 0; ky < height; ++ky) {
          const int64_t row = y * a_.window.stride_height + ky * a_.dilation_height - a_.window.top;
          rows_.lines()[i * height + ky] = rows_.get(images + i * image, i, row);
        }
      }
      compute_row(sample, block, y, from.count);
    }
  }

 private:
  void compute_row(int64_t sample, int64_t block, int64_t y, int64_t input_blocks) const {
    const MapShape& shape = a_.output_shape;
    const int64_t begin = ((sample * shape.blocks() + block) * shape.height + y) * shape.width * kLanes;
    const auto* const weights =
        reinterpret_cast<const uint8_t*>(a_.weights) + block * a_.weight_quads() * kParts<Dot> * kQuadLanes;
    const Ints offset = load_ints(a_.offsets + block * kLanes);
    const Floats factor = load(a_.factors + block * kLanes), bias = load(a_.bias + block * kLanes);
    const Bits lanes = channel_lanes(shape, block);
    for (int64_t x = 0; x < shape.width; x += pieces * outputs) {
      Ints sums[pieces * outputs];
#pragma GCC unroll 8
      for (int u = 0; u < pieces * outputs; ++u) sums[u] = offset;
      if constexpr (kind == Quads::kOfPixels) {
        add_pieces<Dot, outputs, pieces>(a_, rows_.lines(), x / outputs, weights, sums);
      } else {
        add_channels<Dot, kind>(a_, rows_.lines(), input_blocks, x, weights, sums);
      }
      const int64_t to = begin + x * kLanes;
      const auto put = [&](int64_t u) __attribute__((always_inline)) {
        output_.put(to + u * kLanes, multiply_add(to_floats(sums[u]), factor, bias), lanes);
      };
      if (x + pieces * outputs <= shape.width) {
#pragma GCC unroll 8
        for (int u = 0; u < pieces * outputs; ++u) put(u);
      } else {
        for (int64_t u = 0; u < shape.width - x; ++u) put(u);
      }
    }
  }

  const QuantizedGroupedConvolution& a_;
  const Output& output_;
  QuadRows<Dot, kind> rows_;
};

template <typename Dot, Quads kind, int outputs, int pieces>
void run(const QuantizedGroupedConvolution& a) {
  const int64_t rows = a.output_shape.height, parts = (rows + kRowsAPart - 1) / kRowsAPart;
  with_output(a.to, [&]<typename Output>(const Output& output) {
#pragma omp parallel num_threads(a.threads)
    {
      Worker<Dot, kind, outputs, pieces, Output> worker(a, output);
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

template <typename Dot>
void convolve(const QuantizedGroupedConvolution& a) {
  if (!a.is_depthwise()) {
    return a.fills_lanes() ? run<Dot, Quads::kOfLanes, 1, kTile>(a) : run<Dot, Quads::kShared, 1, kTile>(a);
  }
  switch (a.piece_outputs()) {
    case 4:
      return run<Dot, Quads::kOfPixels, 4, 2>(a);
    case 3:
      return run<Dot, Quads::kOfPixels, 3, 2>(a);
    case 2:
      return run<Dot, Quads::kOfPixels, 2, 4>(a);
    default:
      return run<Dot, Quads::kOfPixels, 1, kTile>(a);
  }
}

}  // namespace

void quantized_grouped_convolution(const QuantizedGroupedConvolution& a) {
  a.vnni ? convolve<DotOfBytes>(a) : convolve<DotOfPairs>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
