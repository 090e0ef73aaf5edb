#include "trainyard/nn/cpu/convolution/norm_depthwise/lines.h"
#include "trainyard/nn/cpu/elementwise/activation.h"
#include "trainyard/nn/cpu/norm/statistics.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// What the second pass needs of a block.
struct ForwardBlock {
  float scale[kLanes], shift[kLanes];
  Windows windows;
};

ForwardBlock forward_block(const NormDepthwiseForward& a, int64_t block, const Sums* total) {
  ForwardBlock made = {.scale = {}, .shift = {}, .windows = windows_of(a, block)};
  if (total != nullptr) affine_of<float>(a.norm, block, moments_of<float>(a.norm, block, *total));
  for (int64_t c = 0; c < kLanes; ++c) {
    made.scale[c] = a.norm.scale[block * kLanes + c];
    made.shift[c] = a.norm.shift[block * kLanes + c];
  }
  return made;
}

// Computes a row of the output of the lines that its window's rows have; null: a row outside of the image.
template <int stride>
void convolve_row(const NormDepthwiseForward& a, const Windows& windows, const float* const (&lines)[kRows],
                  const Output<float>& output, int64_t at) {
  const int64_t width = a.output_shape.width;
  for (int64_t x = 0; x < width; x += kNeighbours) {
    Floats sums[kNeighbours] = {};
    for (int64_t row = 0; row < kRows; ++row) {
      if (lines[row] == nullptr) continue;
      const float *const line = lines[row] + (x * stride - a.left) * kLanes, *const weights =
                                                                                 windows.weights[row * kRows];
      if constexpr (stride == 1) {
        add_sliding_row<kRows>(sums, line, weights, kLanes);
      } else {
#pragma GCC unroll 4
        for (int64_t k = 0; k < kRows; ++k) {
          const Floats weight = load(weights + k * kLanes);
#pragma GCC unroll 8
          for (int u = 0; u < kNeighbours; ++u) {
            sums[u] = multiply_add(load(line + (u * stride + k) * kLanes), weight, sums[u]);
          }
        }
      }
    }
    const int64_t inside = smaller(kNeighbours, width - x);
    for (int64_t u = 0; u < inside; ++u) output.put(at + (x + u) * kLanes, sums[u]);
  }
}

template <UnitActivation kind, int stride>
void convolve_strip(const NormDepthwiseForward& a, const ForwardBlock& block, const Strip& strip, Lines& lines,
                    const Output<float>& output) {
  const MapShape &in = a.input_shape, &out = a.output_shape;
  const Floats scale = load(block.scale), shift = load(block.shift);
  for (int64_t n = strip.sample; n < strip.sample + strip.samples; ++n) {
    const float* const image =
        static_cast<const float*>(a.norm.input) + (n * in.blocks() + strip.block) * in.pixels() * kLanes;
    lines.forget();
    for (int64_t y = strip.first; y < strip.last; ++y) {
      const float* rows[kRows];
      for (int64_t k = 0; k < kRows; ++k) {
        const int64_t row = y * stride + k - a.top;
        rows[k] = row < 0 || row >= in.height ? nullptr : lines.get(row, [&](float* line) {
          const float* const from = image + row * in.width * kLanes;
          for (int64_t x = 0; x < in.width * kLanes; x += kLanes) {
            store(line + x, activate<kind>(multiply_add(load(from + x), scale, shift)));
          }
        });
      }
      const int64_t plane = n * out.blocks() + strip.block;
      convolve_row<stride>(a, block.windows, rows, output, (plane * out.height + y) * out.width * kLanes);
    }
  }
}

using ConvolveStrip = void (*)(const NormDepthwiseForward&, const ForwardBlock&, const Strip&, Lines&,
                               const Output<float>&);

}  // namespace

void norm_depthwise_forward(const NormDepthwiseForward& a) {
  ConvolveStrip convolve = nullptr;
  with_activation(a.norm.activation, [&](auto kind) {
    convolve = a.stride == 1 ? convolve_strip<kind.kValue, 1> : convolve_strip<kind.kValue, 2>;
  });
  const Output<float> output(a.output, a.output_shape, false);
  const int64_t blocks = a.input_shape.blocks(), wave = blocks_a_wave(a.input_shape, sizeof(float) * kLanes);
  const int64_t strips = NormDepthwise::strips(a.output_shape);
  Sums* const sums = new Sums[a.collects ? Spans(a.input_shape, 0, wave).count() : 0];
  ForwardBlock* const made = new ForwardBlock[wave];
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    Lines lines(a, reinterpret_cast<float*>(static_cast<char*>(a.scratch) + thread * thread_stride(a.thread_bytes())),
                kRows);
    for (int64_t first = 0; first < blocks; first += wave) {
      const int64_t here = smaller(wave, blocks - first);
      const Spans spans(a.input_shape, first, here);
      if (a.collects) {
        for (int64_t i = spans.count() * thread / threads; i < spans.count() * (thread + 1) / threads; ++i) {
          collect_block<float>(a.norm, first + spans.block(i), spans[i], sums[i]);
        }
      }
#pragma omp barrier
      for (int64_t b = here * thread / threads; b < here * (thread + 1) / threads; ++b) {
        if (a.collects) {
          const Sums total = add_up(spans, sums, b);
          made[b] = forward_block(a, first + b, &total);
        } else {
          made[b] = forward_block(a, first + b, nullptr);
        }
      }
#pragma omp barrier
      // Backwards, because what was read last is most likely still in cache.
      for (int64_t i = here * strips * (thread + 1) / threads; i-- > here * strips * thread / threads;) {
        const int64_t b = i % here;
        convolve(a, made[b], strip_of(a.output_shape, first + b, i / here), lines, output);
      }
    }
    _mm_sfence();  // of stores past the caches
  }
  delete[] sums;
  delete[] made;
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
