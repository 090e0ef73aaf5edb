#include <omp.h>

#include "trainyard/nn/cpu/convolution/bias_gradient.h"
#include "trainyard/nn/cpu/convolution/pointwise/arguments.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The size of a tile: registers hold its kTileRows * kTileBlocks sums, a pixel of as many blocks of the input, and one
// number in all lanes.
constexpr int kTileRows = kLanes / 2;  // output channels: half a block
constexpr int kTileBlocks = 3;         // of input channels

// A span is so many pixels that those of a tile's blocks of the input stay in L1. It depends on the shape only, and so
// does the order of sums.
constexpr int64_t kSpan = 192;
// What a task makes of the gradient stays in a core's second-level cache.
constexpr int64_t kTaskIn = 512, kTaskOut = 256;

// Neighbouring pixels of neighbouring samples.
struct PixelSpan {
  int64_t sample, samples, first, pixels;
};

struct SpanSums {
  const float *source, *output_gradient;  // of the span's first pixel
  int64_t source_block, source_sample;    // elements from one to the next
  int64_t gradient_sample;
  int64_t source_ahead, gradient_ahead;  // elements to the next span
  int64_t samples, pixels;
  float* gradient;
  int64_t gradient_row;
  bool first;
};

// Which of the next span's pixels a tile fetches into the second-level cache.
enum class Ahead : uint8_t { kNone, kGradient, kSource };

template <int blocks, Ahead ahead>
void weights_tile(const SpanSums& s) {
  Floats sums[kTileRows][blocks] = {};
  for (int64_t n = 0; n < s.samples; ++n) {
    const float* source = s.source + n * s.source_sample;
    const float* gradient = s.output_gradient + n * s.gradient_sample;
#pragma GCC unroll 4
    for (int64_t p = 0; p < s.pixels; ++p, source += kLanes, gradient += kLanes) {
      if constexpr (ahead == Ahead::kGradient) _mm_prefetch(gradient + s.gradient_ahead, _MM_HINT_T1);
      if constexpr (ahead == Ahead::kSource) {
#pragma GCC unroll 4
        for (int v = 0; v < blocks; ++v) _mm_prefetch(source + v * s.source_block + s.source_ahead, _MM_HINT_T1);
      }
      Floats line[blocks];
#pragma GCC unroll 4
      for (int v = 0; v < blocks; ++v) line[v] = load(source + v * s.source_block);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const Floats value = fill(gradient[r]);
#pragma GCC unroll 4
        for (int v = 0; v < blocks; ++v) sums[r][v] = multiply_add(value, line[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < blocks; ++v) {
      float* const to = s.gradient + r * s.gradient_row + v * kLanes;
      store(to, s.first ? sums[r][v] : load(to) + sums[r][v]);
    }
  }
}

template <int blocks>
void weights_tile_of(Ahead ahead, const SpanSums& s) {
  switch (ahead) {
    case Ahead::kNone:
      return weights_tile<blocks, Ahead::kNone>(s);
    case Ahead::kGradient:
      return weights_tile<blocks, Ahead::kGradient>(s);
    case Ahead::kSource:
      return weights_tile<blocks, Ahead::kSource>(s);
  }
}

// Blocks of output and input channels.
struct Part {
  int64_t out, out_end, in, in_end;
};

// The first tile of a block of output channels has brought the span's gradients into L1: their sums cost no pass over
// memory. `sums`: of the part's output channels.
void add_bias_span(const PointwiseBackwardWeights& a, const PixelSpan& span, int64_t block, double* sums) {
  const PointwiseShape& s = a.shape;
  for (int64_t n = span.sample; n < span.sample + span.samples; ++n) {
    const int64_t plane = n * (s.out_channels / kLanes) + block;
    add_pixels<4>(a.output_gradient + (plane * s.pixels + span.first) * kLanes, span.pixels, sums);
  }
}

// bias_sums: of the part's output channels, or null.
void add_span(const PointwiseBackwardWeights& a, const PixelSpan& span, const PixelSpan& next, const Part& part,
              bool first, double* bias_sums) {
  const PointwiseShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, out_blocks = s.out_channels / kLanes, step = s.pixels * kLanes;
  for (int64_t in = part.in; in < part.in_end;) {
    const int64_t left = part.in_end - in, blocks = left == 4 ? 2 : smaller(kTileBlocks, left);
    for (int64_t out = part.out; out < part.out_end; ++out) {
      for (int64_t half = 0; half < kLanes; half += kTileRows) {
        const SpanSums sums = {
            .source = a.source + (span.sample * in_blocks + in) * step + span.first * kLanes,
            .output_gradient = a.output_gradient + (span.sample * out_blocks + out) * step + span.first * kLanes + half,
            .source_block = step,
            .source_sample = in_blocks * step,
            .gradient_sample = out_blocks * step,
            .source_ahead = (next.sample - span.sample) * in_blocks * step + (next.first - span.first) * kLanes,
            .gradient_ahead = (next.sample - span.sample) * out_blocks * step + (next.first - span.first) * kLanes,
            .samples = span.samples,
            .pixels = span.pixels,
            .gradient = a.gradient + (out * kLanes + half) * s.in_channels + in * kLanes,
            .gradient_row = s.in_channels,
            .first = first};
        Ahead ahead = Ahead::kNone;
        if (half == 0 && in == part.in) ahead = Ahead::kGradient;
        if (half != 0 && out == part.out) ahead = Ahead::kSource;
        if (blocks == 3) {
          weights_tile_of<3>(ahead, sums);
        } else if (blocks == 2) {
          weights_tile_of<2>(ahead, sums);
        } else {
          weights_tile_of<1>(ahead, sums);
        }
      }
      if (bias_sums != nullptr && in == 0) add_bias_span(a, span, out, bias_sums + (out - part.out) * kLanes);
    }
    in += blocks;
  }
}

}  // namespace

void pointwise_backward_weights(const PointwiseBackwardWeights& a) {
  const PointwiseShape& s = a.shape;
  const int64_t in_blocks = s.in_channels / kLanes, out_blocks = s.out_channels / kLanes;
  const int64_t parts_of_image = larger(1, (s.pixels + kSpan / 2) / kSpan);
  const int64_t together = larger(1, kSpan / larger(1, s.pixels));
  const int64_t spans = (s.batch + together - 1) / together * parts_of_image;
  const auto span_at = [&](int64_t index) {
    const int64_t sample = index / parts_of_image * together, j = index % parts_of_image;
    const int64_t first = s.pixels * j / parts_of_image;
    return PixelSpan{.sample = sample,
                     .samples = smaller(together, s.batch - sample),
                     .first = first,
                     .pixels = s.pixels * (j + 1) / parts_of_image - first};
  };
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads();
    int64_t in_parts = (s.in_channels + kTaskIn - 1) / kTaskIn, out_parts = (s.out_channels + kTaskOut - 1) / kTaskOut;
    // Every thread gets as many tasks, or a few so that one more or less matters little.
    const auto uneven = [&](int64_t tasks) { return tasks < threads || (tasks % threads != 0 && tasks < 4 * threads); };
    while (uneven(in_parts * out_parts)) {
      if (in_blocks / in_parts >= 2 * (out_blocks / out_parts) && in_blocks >= 6 * in_parts) {
        in_parts *= 2;
      } else if (out_blocks >= 2 * out_parts) {
        out_parts *= 2;
      } else {
        break;
      }
    }
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < in_parts * out_parts; ++task) {
      const int64_t o = task / in_parts, i = task % in_parts;
      const Part part = {.out = out_blocks * o / out_parts,
                         .out_end = out_blocks * (o + 1) / out_parts,
                         .in = in_blocks * i / in_parts,
                         .in_end = in_blocks * (i + 1) / in_parts};
      const bool sums_bias = a.bias_gradient != nullptr && part.in == 0;
      double bias_sums[kTaskOut] = {};
      for (int64_t k = 0; k < spans; ++k) {
        add_span(a, span_at(k), span_at(smaller(k + 1, spans - 1)), part, k == 0, sums_bias ? bias_sums : nullptr);
      }
      for (int64_t c = part.out * kLanes; sums_bias && c < smaller(part.out_end * kLanes, a.bias_count); ++c) {
        a.bias_gradient[c] = static_cast<float>(bias_sums[c - part.out * kLanes]);
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
