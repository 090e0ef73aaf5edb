// The first pass goes through the input row by row. For each it makes the normalized row again, the gradient of it from
// the output's gradient, and with both at hand all sums: those of the windows' weights and those of the norm. The
// second pass is the norm's own.
#include "trainyard/nn/cpu/convolution/norm_depthwise/lines.h"
#include "trainyard/nn/cpu/norm/gradient_passes.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// A strip's sums: of d and of d * (input - mean), and the gradients of the windows.
struct StripSums {
  Sums norm;
  float weights[kRows * kRows][kLanes];
};

// What a row reads is asked for while the row before is computed, so many pixels earlier.
constexpr int64_t kAhead = 4;

struct BackwardBlock {
  Block norm;
  Windows windows;
};

// Lines of a thread: rows of the output's gradient, the normalized row, and its gradient.
struct BackwardLines {
  Lines gradients;
  float *normalized, *sent;
};

BackwardLines lines_of(const NormDepthwiseBackward& a, float* memory) {
  const int64_t line = a.line_pixels() * kLanes;
  BackwardLines lines = {.gradients = Lines(a, memory, kRows), .normalized = nullptr, .sent = nullptr};
  const Lines rest(a, memory + kRows * line, 2);
  lines.normalized = rest.at(0);
  lines.sent = rest.at(1);
  return lines;
}

// Computes the gradient of a normalized row. lines[k]: the output's gradient where the window's row k meets it, or
// null.
template <int stride>
void send_back_row(const NormDepthwiseBackward& a, const Windows& windows, const float* const (&lines)[kRows],
                   float* sent) {
  const int64_t width = a.input_shape.width;
  if constexpr (stride == 1) {
    for (int64_t x = 0; x < width; x += kNeighbours) {
      Floats sums[kNeighbours] = {};
      for (int64_t row = 0; row < kRows; ++row) {
        // Backward the columns run from right to left.
        if (lines[row] != nullptr) {
          add_sliding_row<kRows>(sums, lines[row] + (x + a.left - (kRows - 1)) * kLanes,
                                 windows.weights[row * kRows + kRows - 1], -kLanes);
        }
      }
#pragma GCC unroll 8
      for (int u = 0; u < kNeighbours; ++u) store(sent + (x + u) * kLanes, sums[u]);
    }
  } else {
    // Every other pixel meets the windows' middle column, or the middle one's neighbours.
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int64_t reach = phase + a.left;
      for (int64_t x = 0; phase + x * stride < width; x += kNeighbours) {
        Floats sums[kNeighbours] = {};
        for (int64_t row = 0; row < kRows; ++row) {
          if (lines[row] == nullptr) continue;
          for (int64_t k = reach % stride; k < kRows; k += stride) {
            const Floats weight = load(windows.weights[row * kRows + k]);
            const float* const from = lines[row] + (x + (reach - k) / stride) * kLanes;
#pragma GCC unroll 8
            for (int u = 0; u < kNeighbours; ++u) sums[u] = multiply_add(load(from + u * kLanes), weight, sums[u]);
          }
        }
        const int64_t inside = smaller(kNeighbours, (width - phase + stride - 1) / stride - x);
        for (int64_t u = 0; u < inside; ++u) store(sent + (phase + (x + u) * stride) * kLanes, sums[u]);
      }
    }
  }
}

// Makes the normalized row of `input`, passes its gradient through the activation to `to`, and adds to the norm's sums.
template <UnitActivation kind, bool past_caches>
void finish_row(const Block& block, const float* input, int64_t width, const BackwardLines& lines, float* to,
                Sums& sums) {
  const Floats scale = load(block.scale), shift = load(block.shift), mean = load(block.mean);
  const int64_t ahead = (width + kAhead) * kLanes;
  Floats first = {}, second = {};
  for (int64_t at = 0; at < width * kLanes; at += kLanes) {
    _mm_prefetch(input + at + ahead, _MM_HINT_T0);
    if constexpr (!past_caches) _mm_prefetch(to + at + ahead, _MM_HINT_T0);
    const Floats x = load(input + at), u = multiply_add(x, scale, shift);
    const Floats d = pass_back<kind>(load(lines.sent + at), u);
    store(lines.normalized + at, activate<kind>(u));
    first += d;
    second = multiply_add(d, x - mean, second);
    past_caches ? stream(to + at, d) : store(to + at, d);
  }
  float row_first[kLanes], row_second[kLanes];
  store(row_first, first);
  store(row_second, second);
  for (int64_t c = 0; c < kLanes; ++c) {
    sums.first[c] += row_first[c];
    sums.second[c] += row_second[c];
  }
}

// Adds the products of a row of the output's gradient and of a normalized row, whose pixels lie `stride` apart for
// neighbours of the output, to the three columns of `sums`. Two sums for each, which wait for each other less.
template <int stride>
void add_weights(const float* gradients, const float* normalized, int64_t width, float (*sums)[kLanes]) {
  constexpr int kTogether = 4;
  Floats kept[2][kRows];
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) {
    kept[0][k] = load(sums[k]);
    kept[1][k] = fill(0);
  }
  // Behind the row both lines have zeros, or the gradient has.
  for (int64_t x = 0; x < width; x += kTogether) {
    Floats pixels[(kTogether - 1) * stride + kRows];
#pragma GCC unroll 16
    for (int i = 0; i < (kTogether - 1) * stride + kRows; ++i) pixels[i] = load(normalized + (x * stride + i) * kLanes);
#pragma GCC unroll 4
    for (int u = 0; u < kTogether; ++u) {
      const Floats gradient = load(gradients + (x + u) * kLanes);
#pragma GCC unroll 4
      for (int k = 0; k < kRows; ++k) kept[u % 2][k] = multiply_add(pixels[u * stride + k], gradient, kept[u % 2][k]);
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) store(sums[k], kept[0][k] + kept[1][k]);
}

template <UnitActivation kind, int stride>
void pass_strip(const NormDepthwiseBackward& a, const BackwardBlock& block, const Strip& strip, bool past_caches,
                BackwardLines& lines, StripSums& sums) {
  const auto finish = past_caches ? finish_row<kind, true> : finish_row<kind, false>;
  const MapShape &in = a.input_shape, &out = a.output_shape;
  __builtin_memset(&sums, 0, sizeof(sums));
  for (int64_t n = strip.sample; n < strip.sample + strip.samples; ++n) {
    const int64_t place = (n * in.blocks() + strip.block) * in.pixels() * kLanes;
    const float* const gradients =
        static_cast<const float*>(a.output_gradient) + (n * out.blocks() + strip.block) * out.pixels() * kLanes;
    lines.gradients.forget();
    for (int64_t y = strip.first; y < strip.last; ++y) {
      const float* rows[kRows];
      for (int64_t k = 0; k < kRows; ++k) {
        const int64_t at = y + a.top - k, row = at / stride;
        const bool meets = at >= 0 && at % stride == 0 && row < out.height;
        rows[k] = !meets ? nullptr : lines.gradients.get(row, [&](float* line) {
          const float* const from = gradients + row * out.width * kLanes;
          for (int64_t x = 0; x < out.width * kLanes; x += kLanes) {
            _mm_prefetch(from + x + (out.width + kAhead) * kLanes, _MM_HINT_T0);
            store(line + x, load(from + x));
          }
        });
      }
      send_back_row<stride>(a, block.windows, rows, lines.sent);
      const int64_t begin = place + y * in.width * kLanes;
      finish(block.norm, static_cast<const float*>(a.norm.input) + begin, in.width, lines,
             static_cast<float*>(a.norm.input_gradient) + begin, sums.norm);
      for (int64_t k = 0; k < kRows; ++k) {
        if (rows[k] == nullptr) continue;
        add_weights<stride>(rows[k], lines.normalized - a.left * kLanes, out.width, sums.weights + k * kRows);
      }
    }
  }
}

// Adds up a block's strips in their order, writes the gradients of all parameters, and returns the second pass's
// numbers.
Block finish_block(const NormDepthwiseBackward& a, int64_t block, const StripSums* strips, int64_t count) {
  Sums total = {};
  double weights[kRows * kRows][kLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < kLanes; ++c) {
      total.first[c] += strips[i].norm.first[c];
      total.second[c] += strips[i].norm.second[c];
    }
    for (int64_t k = 0; k < kRows * kRows; ++k) {
      for (int64_t c = 0; c < kLanes; ++c) weights[k][c] += strips[i].weights[k][c];
    }
  }
  const int64_t channels = smaller(kLanes, a.input_shape.channels - block * kLanes);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < kRows * kRows; ++k) {
      a.weights_gradient[(block * kLanes + c) * kRows * kRows + k] = static_cast<float>(weights[k][c]);
    }
  }
  write_parameter_gradients(a.norm, block, total);
  return combine(a.norm, block, total, static_cast<double>(a.input_shape.batch * a.input_shape.pixels()));
}

using PassStrip = void (*)(const NormDepthwiseBackward&, const BackwardBlock&, const Strip&, bool past_caches,
                           BackwardLines&, StripSums&);

}  // namespace

void norm_depthwise_backward(const NormDepthwiseBackward& a) {
  static_assert(sizeof(StripSums) == kLanes * (2 * sizeof(double) + kRows * kRows * sizeof(float)));
  PassStrip pass = nullptr;
  with_activation(a.norm.activation,
                  [&](auto kind) { pass = a.stride == 1 ? pass_strip<kind.kValue, 1> : pass_strip<kind.kValue, 2>; });
  NormBackward second = a.norm;  // d is where the input's gradient will be
  second.gradients[0] = a.norm.input_gradient;
  second.gradient_count = 1;
  const MapShape& in = a.input_shape;
  const int64_t blocks = in.blocks(), strips = NormDepthwise::strips(in), pixel_bytes = 2 * sizeof(float) * kLanes;
  const int64_t wave = blocks_a_wave(in, pixel_bytes);
  // Where the second pass would not find d in the cache anyway, it is written past it.
  const bool past_caches = in.batch * in.pixels() * pixel_bytes > last_cache_bytes() / 2 &&
                           goes_past_caches<float>(in, a.norm.input_gradient);
  auto* const memory = static_cast<char*>(a.scratch);
  auto* const sums = reinterpret_cast<StripSums*>(memory + thread_scratch_bytes(a.thread_bytes(), a.threads));
  BackwardBlock* const made = new BackwardBlock[wave];
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    BackwardLines lines = lines_of(a, reinterpret_cast<float*>(memory + thread * thread_stride(a.thread_bytes())));
    for (int64_t first = 0; first < blocks; first += wave) {
      const int64_t here = smaller(wave, blocks - first);
      const Spans spans(in, first, here);
      for (int64_t b = here * thread / threads; b < here * (thread + 1) / threads; ++b) {
        made[b] = {.norm = block_of(a.norm, first + b), .windows = windows_of(a, first + b)};
      }
#pragma omp barrier
      for (int64_t i = here * strips * thread / threads; i < here * strips * (thread + 1) / threads; ++i) {
        const int64_t b = i % here, k = i / here;
        pass(a, made[b], strip_of(in, first + b, k), past_caches, lines, sums[b * strips + k]);
      }
      _mm_sfence();  // the second pass may read what another thread has streamed
#pragma omp barrier
      for (int64_t b = here * thread / threads; b < here * (thread + 1) / threads; ++b) {
        made[b].norm = finish_block(a, first + b, sums + b * strips, strips);
      }
#pragma omp barrier
      // Backwards, because what was read last is most likely still in cache.
      for (int64_t i = spans.count() * (thread + 1) / threads; i-- > spans.count() * thread / threads;) {
        apply<float, UnitActivation::kNone, false>(second, made[spans.block(i)].norm, false, spans[i]);
      }
#pragma omp barrier
    }
  }
  delete[] made;
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
