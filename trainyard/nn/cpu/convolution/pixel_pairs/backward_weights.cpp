#include <omp.h>

#include "trainyard/nn/cpu/convolution/bias_gradient.h"
#include "trainyard/nn/cpu/convolution/pixel_pairs/pixel_pairs.h"
#include "trainyard/nn/cpu/simd/intrinsics.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"

namespace trainyard::nn::cpu::pixel_pairs {
namespace {

using TRAINYARD_ISA::kLanes;
using TRAINYARD_ISA::larger;
using TRAINYARD_ISA::smaller;
using Floats = __m512;

// About so many pixels are a span. A panel's pairs of a span, and a block of the output gradient's, stay in L1. Spans
// depend on the shape only, and so does the order of sums.
constexpr int64_t kSpan = 192;
// What a task makes of the gradient, and the pairs that it makes that of, stay in a core's second-level cache: so many
// blocks of outputs, columns and both of them together.
constexpr int64_t kTaskOutputs = 16, kTaskColumns = 32, kTaskBlocks = 256;
constexpr int kPanel = 4;  // columns that one sweep makes

// A column is a block of 16 input channels that meets one tap. Columns lie as [block][tap], so that a task that makes
// some of them reads few blocks of the input.
struct Plan {
  int64_t columns, outputs;  // all of them, in blocks
  int64_t taps;
  int64_t column_parts, output_parts;  // tasks
  int64_t spans_an_image, images;      // a span is a part of an image, or so many whole images
  int64_t most;                        // pixels of a span, an even number

  [[gnu::always_inline]] int64_t spans(const Shape& s) const {
    return (s.batch + images - 1) / images * spans_an_image;
  }
  // A thread's memory: pairs of its columns and of its outputs, and the places of a span's pixels.
  [[gnu::always_inline]] int64_t block_elements() const { return most * kLanes; }
  [[gnu::always_inline]] int64_t first_column(int64_t part) const {  // whole panels
    const int64_t panels = (columns + kPanel - 1) / kPanel;
    return smaller(columns, panels * part / column_parts * kPanel);
  }
  [[gnu::always_inline]] int64_t column_bytes() const {
    const int64_t panels = (columns + kPanel - 1) / kPanel;
    return (panels + column_parts - 1) / column_parts * kPanel * block_elements() * 2;
  }
  [[gnu::always_inline]] int64_t output_bytes() const {
    return (outputs + output_parts - 1) / output_parts * block_elements() * 2;
  }
  [[gnu::always_inline]] int64_t place_bytes() const { return (taps * most * 8 + 63) / 64 * 64; }
  [[gnu::always_inline]] int64_t bytes() const { return column_bytes() + output_bytes() + place_bytes(); }
};

Plan plan_of(const Shape& s, int threads) {
  Plan plan{.columns = s.taps() * s.in_channels / kLanes, .outputs = s.out_channels / kLanes, .taps = s.taps()};
  const auto parts = [](int64_t count, int64_t most) { return (count + most - 1) / most; };
  plan.output_parts = parts(plan.outputs, kTaskOutputs);
  plan.column_parts = parts(plan.columns, smaller(kTaskColumns, kTaskBlocks * plan.output_parts / plan.outputs));
  // Every thread gets as many tasks, or a few so that one more or less matters little.
  const auto uneven = [&] {
    const int64_t tasks = plan.column_parts * plan.output_parts;
    return tasks < threads || (tasks % threads != 0 && tasks < 4 * threads);
  };
  while (uneven()) {
    // More parts of one mean that the other's pairs are made once more for each.
    const int64_t columns = plan.columns / plan.column_parts, outputs = plan.outputs / plan.output_parts;
    if (columns >= 2 * kPanel && columns >= outputs) {
      plan.column_parts *= 2;
    } else if (outputs >= 2) {
      plan.output_parts *= 2;
    } else if (columns >= 2 * kPanel) {
      plan.column_parts *= 2;
    } else {
      break;
    }
  }
  plan.spans_an_image = larger(1, (s.pixels() + kSpan / 2) / kSpan);
  plan.images = larger(1, kSpan / larger(1, s.pixels()));
  const int64_t pixels = (s.pixels() + plan.spans_an_image - 1) / plan.spans_an_image * smaller(plan.images, s.batch);
  plan.most = (pixels + 1) / 2 * 2;
  return plan;
}

// Neighbouring pixels of neighbouring samples.
struct Span {
  int64_t sample, samples, first, pixels;
  [[gnu::always_inline]] int64_t count() const { return samples * pixels; }
};

Span span_at(const Shape& s, const Plan& plan, int64_t index) {
  const int64_t sample = index / plan.spans_an_image * plan.images, j = index % plan.spans_an_image;
  const int64_t first = s.pixels() * j / plan.spans_an_image;
  return {.sample = sample,
          .samples = smaller(plan.images, s.batch - sample),
          .first = first,
          .pixels = s.pixels() * (j + 1) / plan.spans_an_image - first};
}

// Returns 16 pairs of two pixels' channels, given one pixel's channels behind the other's.
[[gnu::always_inline]] inline __m512i paired(__m512i pixels) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, pixels);
}

// Writes pairs of neighbouring pixels: [pair][lane][2].
void pair_neighbours(const uint16_t* from, int64_t count, uint16_t* to) {
  int64_t p = 0;
  for (; p + 2 <= count; p += 2) _mm512_store_si512(to + p * kLanes, paired(_mm512_loadu_si512(from + p * kLanes)));
  if (p < count) {
    const __m256i last = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + p * kLanes));
    _mm512_store_si512(to + p * kLanes, paired(_mm512_zextsi256_si512(last)));
  }
}

// Writes pairs of pixels that lie at `places`, elements from `from` on. A negative place is outside of the image.
// `count` is even.
void pair_places(const uint16_t* from, const int64_t* places, int64_t count, uint16_t* to) {
  const auto pixel = [&](int64_t place) __attribute__((always_inline)) {
    return _mm256_maskz_loadu_epi16(place < 0 ? 0 : 0xFFFF, from + larger(place, 0));
  };
  for (int64_t p = 0; p < count; p += 2) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(pixel(places[p])), pixel(places[p + 1]), 1);
    _mm512_store_si512(to + p * kLanes, paired(both));
  }
}

// Finds where a tap meets the input for each pixel of a span, and one more place outside if their number is odd.
void find_places(const Shape& s, const Span& span, int64_t tap, int64_t* places) {
  const int64_t sample_elements = s.in_channels * s.in_height * s.in_width;
  const int64_t down = tap / s.kernel_width * s.dilation_height - s.top,
                right = tap % s.kernel_width * s.dilation_width - s.left;
  for (int64_t n = span.sample; n < span.sample + span.samples; ++n) {
    int64_t row = span.first / s.out_width, column = span.first % s.out_width;
    for (int64_t p = 0; p < span.pixels;) {
      const int64_t y = row * s.stride_height + down, end = smaller(s.out_width, column + span.pixels - p);
      const bool inside = y >= 0 && y < s.in_height;
      const int64_t line = n * sample_elements + y * s.in_width * kLanes;
      for (; column < end; ++column, ++p) {
        const int64_t x = column * s.stride_width + right;
        *places++ = inside && x >= 0 && x < s.in_width ? line + x * kLanes : -1;
      }
      ++row;
      column = 0;
    }
  }
  if (span.count() % 2 != 0) *places = -1;
}

// What the tiles of a panel have in common. Pairs are taken for 32 bits.
struct Panel {
  const uint32_t* columns;  // the panel's first column of the span; columns follow each other `block_pairs` apart
  int64_t block_pairs;
  int64_t pairs;
  float* gradient;  // of the panel's first column
  int64_t gradient_row;
  bool first;  // span: nothing is added to
};

// Neighbouring lines of memory that the next span needs.
struct Lines {
  const char* from = nullptr;
  int64_t count = 0;  // behind the first
};

// The lines of the next span, row by row of each block, for tiles to fetch into the second-level cache while they
// multiply.
class LinesAhead {
 public:
  // Rows of `bytes`, `row_step` bytes apart, in each of `blocks` blocks, `block_step` bytes apart.
  struct Rows {
    const char* from = nullptr;
    int64_t blocks = 0, block_step = 0, rows = 0, row_step = 0, bytes = 0;
  };
  LinesAhead(const Rows& first, const Rows& second) : rows_{first, second} {}

  // Returns the next lines, `most` at most; the same one again behind the last.
  Lines next(int64_t most) {
    while (part_ < 2 && block_ == rows_[part_].blocks) {
      ++part_;
      block_ = 0;
    }
    if (part_ == 2) return last_;
    const Rows& rows = rows_[part_];
    const char* const from = rows.from + block_ * rows.block_step + row_ * rows.row_step + done_ * 64;
    const int64_t lines = (rows.bytes + 63) / 64, count = smaller(most, lines - done_);
    done_ += count;
    if (done_ == lines) {
      done_ = 0;
      if (++row_ == rows.rows) {
        row_ = 0;
        ++block_;
      }
    }
    last_ = {.from = from, .count = 0};
    return {.from = from, .count = count - 1};
  }

 private:
  Rows rows_[2];
  int part_ = 0;
  int64_t block_ = 0, row_ = 0, done_ = 0;
  Lines last_;
};

template <int rows, int vectors>
void make_tile(const Panel& s, const uint32_t* outputs, float* gradient, const Lines& ahead) {
  if (!s.first) {  // what is added to at the end
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) _mm_prefetch(gradient + r * s.gradient_row + v * kLanes, _MM_HINT_T0);
    }
  }
  Floats sums[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  const uint32_t* columns = s.columns;
  for (int64_t k = 0; k < s.pairs; ++k, outputs += kLanes, columns += kLanes) {
    _mm_prefetch(ahead.from + smaller(k, ahead.count) * 64, _MM_HINT_T1);
    __m512bh line[vectors];
    for (int v = 0; v < vectors; ++v) {
      line[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(columns + v * s.block_pairs));
    }
    for (int r = 0; r < rows; ++r) {
      const auto value = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(outputs[r])));
      for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], value, line[v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      float* const to = gradient + r * s.gradient_row + v * kLanes;
      _mm512_storeu_ps(to, s.first ? sums[r][v] : _mm512_loadu_ps(to) + sums[r][v]);
    }
  }
}

// Makes a tile of `count` rows, 1 to `rows`.
template <int vectors, int rows>
void make_tile_of(int64_t count, const Panel& s, const uint32_t* outputs, float* gradient, const Lines& ahead) {
  if constexpr (rows > 1) {
    if (count < rows) return make_tile_of<vectors, rows - 1>(count, s, outputs, gradient, ahead);
  }
  make_tile<rows, vectors>(s, outputs, gradient, ahead);
}

// Makes the sums of a panel for one block of outputs, of which `count` are real.
template <int vectors>
void make_rows(const Panel& s, const uint32_t* outputs, float* gradient, int64_t count, LinesAhead& ahead) {
  // Registers hold the tile's sums, a line of the panel, and one pair in all lanes.
  constexpr int kRows = vectors == 4 ? 6 : vectors == 1 ? 16 : 8;
  const int64_t tiles = (count + kRows - 1) / kRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = count * t / tiles, end = count * (t + 1) / tiles;
    make_tile_of<vectors, kRows>(end - first, s, outputs + first, gradient + first * s.gradient_row,
                                 ahead.next(s.pairs));
  }
}

// Blocks of outputs, and columns.
struct Part {
  int64_t output, output_end, column, column_end;
};

class Task {
 public:
  Task(const BackwardWeights& a, const Plan& plan, const Part& part, uint8_t* memory)
      : a_(a),
        s_(a.shape),
        plan_(plan),
        part_(part),
        columns_(reinterpret_cast<uint16_t*>(memory)),
        outputs_(reinterpret_cast<uint16_t*>(memory + plan.column_bytes())),
        places_(reinterpret_cast<int64_t*>(memory + plan.column_bytes() + plan.output_bytes())) {}

  void run() const {
    const int64_t spans = plan_.spans(s_);
    for (int64_t k = 0; k < spans; ++k) {
      const Span span = span_at(s_, plan_, k);
      pair_outputs(span);
      pair_columns(span);
      multiply(span, span_at(s_, plan_, smaller(k + 1, spans - 1)), k == 0);
    }
  }

 private:
  [[gnu::always_inline]] bool is_plain() const {
    return s_.taps() == 1 && s_.stride_height == 1 && s_.stride_width == 1 && s_.top == 0 && s_.left == 0 &&
           s_.in_height == s_.out_height && s_.in_width == s_.out_width;
  }

  void pair_outputs(const Span& span) const {
    const int64_t block_elements = s_.pixels() * kLanes, blocks = s_.out_channels / kLanes;
    const auto* const map = static_cast<const uint16_t*>(a_.output_gradient);
    if (span.samples > 1) {
      for (int64_t i = 0; i < span.count(); ++i) {
        places_[i] = (i / s_.pixels() * blocks * s_.pixels() + i % s_.pixels()) * kLanes;
      }
      if (span.count() % 2 != 0) places_[span.count()] = -1;
    }
    for (int64_t b = part_.output; b < part_.output_end; ++b) {
      const uint16_t* const from = map + (span.sample * blocks + b) * block_elements + span.first * kLanes;
      uint16_t* const to = outputs_ + (b - part_.output) * plan_.block_elements();
      if (span.samples > 1) {
        pair_places(from, places_, span.count(), to);
      } else {
        pair_neighbours(from, span.pixels, to);
      }
    }
  }

  void pair_columns(const Span& span) const {
    const int64_t block_elements = s_.in_height * s_.in_width * kLanes, blocks = s_.in_channels / kLanes;
    const auto* const map = static_cast<const uint16_t*>(a_.source);
    const bool neighbours = is_plain() && span.samples == 1;
    for (int64_t tap = 0; tap < plan_.taps && !neighbours; ++tap)
      find_places(s_, span, tap, places_ + tap * plan_.most);
    for (int64_t c = part_.column; c < part_.column_end; ++c) {
      const uint16_t* const from = map + c / plan_.taps * block_elements;
      uint16_t* const to = columns_ + (c - part_.column) * plan_.block_elements();
      if (neighbours) {
        pair_neighbours(from + span.sample * blocks * block_elements + span.first * kLanes, span.pixels, to);
      } else {
        pair_places(from, places_ + c % plan_.taps * plan_.most, span.count(), to);
      }
    }
  }

  // Returns what the next span reads, unless that is what this one has read.
  LinesAhead lines_ahead(const Span& next) const {
    const int64_t in_block = s_.in_height * s_.in_width * kLanes * 2, out_block = s_.pixels() * kLanes * 2;
    const int64_t first_block = part_.column / plan_.taps, end_block = (part_.column_end - 1) / plan_.taps + 1;
    const int64_t in_blocks = s_.in_channels / kLanes, out_blocks = s_.out_channels / kLanes;
    LinesAhead::Rows outputs{.from = static_cast<const char*>(a_.output_gradient) +
                                     (next.sample * out_blocks + part_.output) * out_block + next.first * kLanes * 2,
                             .blocks = part_.output_end - part_.output,
                             .block_step = out_block,
                             .rows = 1,
                             .bytes = next.pixels * kLanes * 2};
    const char* const map = static_cast<const char*>(a_.source) + (next.sample * in_blocks + first_block) * in_block;
    LinesAhead::Rows inputs{.blocks = end_block - first_block, .block_step = in_block};
    const int64_t first_row = next.first / s_.out_width, end_row = (next.first + next.pixels - 1) / s_.out_width + 1;
    const int64_t row_bytes = s_.in_width * kLanes * 2;
    if (is_plain()) {
      inputs.from = map + next.first * kLanes * 2;
      inputs.rows = 1;
      inputs.bytes = next.pixels * kLanes * 2;
    } else if (s_.kernel_height < s_.stride_height && s_.top == 0) {  // passes over rows
      inputs.from = map + first_row * s_.stride_height * row_bytes;
      inputs.rows = end_row - first_row;
      inputs.row_step = s_.stride_height * row_bytes;
      inputs.bytes = row_bytes;
    } else {
      const int64_t reach = (s_.kernel_height - 1) * s_.dilation_height;
      const int64_t begin = smaller(s_.in_height - 1, larger(0, first_row * s_.stride_height - s_.top));
      const int64_t end =
          smaller(s_.in_height, larger(begin + 1, (end_row - 1) * s_.stride_height - s_.top + reach + 1));
      inputs.from = map + begin * row_bytes;
      inputs.rows = 1;
      inputs.bytes = (end - begin) * row_bytes;
    }
    return {outputs, inputs};
  }

  void multiply(const Span& span, const Span& next, bool first) const {
    LinesAhead ahead = lines_ahead(next);
    const int64_t columns = plan_.columns;
    Panel panel{.columns = reinterpret_cast<const uint32_t*>(columns_),
                .block_pairs = plan_.block_elements() / 2,
                .pairs = (span.count() + 1) / 2,
                .gradient = a_.gradient + part_.column * kLanes,
                .gradient_row = columns * kLanes,
                .first = first};
    for (int64_t c = part_.column; c < part_.column_end; c += kPanel) {
      const int64_t vectors = smaller(kPanel, part_.column_end - c);
      for (int64_t b = part_.output; b < part_.output_end; ++b) {
        const auto* const outputs =
            reinterpret_cast<const uint32_t*>(outputs_ + (b - part_.output) * plan_.block_elements());
        float* const gradient = panel.gradient + b * kLanes * panel.gradient_row;
        const int64_t count = smaller(kLanes, s_.real_outputs - b * kLanes);
        switch (vectors) {
          case 1:
            make_rows<1>(panel, outputs, gradient, count, ahead);
            break;
          case 2:
            make_rows<2>(panel, outputs, gradient, count, ahead);
            break;
          case 3:
            make_rows<3>(panel, outputs, gradient, count, ahead);
            break;
          default:
            make_rows<4>(panel, outputs, gradient, count, ahead);
        }
      }
      panel.columns += kPanel * panel.block_pairs;
      panel.gradient += kPanel * kLanes;
    }
  }

  const BackwardWeights& a_;
  const Shape& s_;
  const Plan& plan_;
  Part part_;
  uint16_t *columns_, *outputs_;
  int64_t* places_;
};

}  // namespace

int64_t backward_weights_scratch_bytes(const Shape& shape, int threads) {
  return thread_scratch_bytes(plan_of(shape, threads).bytes(), threads);
}

void backward_weights(const BackwardWeights& a) {
  const Plan plan = plan_of(a.shape, a.threads);
#pragma omp parallel num_threads(a.threads)
  {
    auto* const memory = static_cast<uint8_t*>(a.scratch) + omp_get_thread_num() * thread_stride(plan.bytes());
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < plan.column_parts * plan.output_parts; ++task) {
      const int64_t o = task / plan.column_parts, c = task % plan.column_parts;
      const Part part{.output = plan.outputs * o / plan.output_parts,
                      .output_end = plan.outputs * (o + 1) / plan.output_parts,
                      .column = plan.first_column(c),
                      .column_end = plan.first_column(c + 1)};
      Task(a, plan, part, memory).run();
    }
    if (a.bias_gradient != nullptr) {
      TRAINYARD_ISA::sum_bias_gradients<4, TRAINYARD_ISA::Bfloat16>(
          {.batch = a.shape.batch,
           .blocks = a.shape.out_channels / kLanes,
           .pixels = a.shape.pixels(),
           .together = kSpan,
           .gradient = static_cast<const TRAINYARD_ISA::Bfloat16*>(a.output_gradient),
           .sums = a.bias_gradient,
           .count = a.bias_count});
    }
  }
}

void unpack(const Unpack& a) {
  const int64_t padded = (a.in_channels + kLanes - 1) / kLanes * kLanes;
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t out = 0; out < a.out_channels; ++out) {
    const float* const from = a.gradient + out * a.taps * padded;
    float* to = a.plain + out * a.in_channels * a.taps;
    for (int64_t in = 0; in < a.in_channels; ++in) {
      const float* const block = from + in / kLanes * a.taps * kLanes + in % kLanes;
      for (int64_t tap = 0; tap < a.taps; ++tap) *to++ = block[tap * kLanes];
    }
  }
}

}  // namespace trainyard::nn::cpu::pixel_pairs
