// Products of maps and factors: of each channel (squeeze-and-excitation), each sample (stochastic depth) or each
// element (dropout).
#include "trainyard/nn/cpu/layout/transpose.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Loads the values of a block of a sample from `values` [N, C].
[[gnu::always_inline]] inline Floats of_plane(const float* values, const MapShape& shape, int64_t plane) {
  const int64_t n = plane / shape.blocks(), b = plane % shape.blocks();
  return load_lanes(values + n * shape.channels + b * kLanes, channel_lanes(shape, b));
}

template <typename T>
void scale_channels(const ScaleChannelsForward& a) {
  const T* const input = static_cast<const T*>(a.input);
  const T* const residual = static_cast<const T*>(a.residual);
  const Output<T> output(a.output, a.shape, false);
  in_pieces(a.shape, [&](const Piece& piece) {
    const Floats factor = of_plane(a.factor, a.shape, piece.plane);
    if (residual == nullptr) {
      each_pixel(piece, [&](int64_t at) { output.put(at, load(input + at) * factor); });
    } else {
      each_pixel(piece,
                 [&](int64_t at) { output.put(at, multiply_add(load(input + at), factor, load(residual + at))); });
    }
  });
}

template <typename T>
void scale_channels_back(const ScaleChannelsBackward& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const T* const input = static_cast<const T*>(a.input);
  const T* const gradient = static_cast<const T*>(a.gradient);
  const Output<T> target(a.input_gradient, a.shape, false);
  for_each(a.shape.batch * blocks, [&](int64_t plane) {
    const Floats factor = of_plane(a.factor, a.shape, plane);
    const int64_t end = (plane + 1) * pixels * kLanes;
    Floats total = {};
    // Sums of few products are added up, so that a channel of a million pixels loses no digits.
    for (int64_t at = plane * pixels * kLanes; at < end;) {
      Floats sums[4] = {};
      const int64_t last = smaller(end, at + kPiecePixels * kLanes);
      const auto pass = [&](int64_t to, Floats & sum) __attribute__((always_inline)) {
        const Floats g = load(gradient + to);
        sum = multiply_add(g, load(input + to), sum);
        target.put_or_add(to, g * factor, a.accumulate);
      };
      for (; at + 4 * kLanes <= last; at += 4 * kLanes) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) pass(at + i * kLanes, sums[i]);
      }
      for (; at < last; at += kLanes) pass(at, sums[0]);
      total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
    const int64_t n = plane / blocks, b = plane % blocks;
    store_lanes(a.factor_gradient + n * a.shape.channels + b * kLanes, total, channel_lanes(a.shape, b));
  });
}

template <typename T>
void scale_whole_samples(const ScaleSamples& a) {
  const T* const input = static_cast<const T*>(a.input);
  const Output<T> output(a.output, a.shape, a.output == a.input);
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t n = piece.plane / a.shape.blocks(), b = piece.plane % a.shape.blocks();
    const Floats factor = keep(fill(a.factor[n]), channel_lanes(a.shape, b));  // no -0 in pad lanes
    each_pixel(piece, [&](int64_t at) { output.put_or_add(at, load(input + at) * factor, a.accumulate); });
  });
}

template <typename T>
void scale_elements(const ScaleSamples& a) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels();
  const T* const input = static_cast<const T*>(a.input);
  const Output<T> output(a.output, a.shape, a.output == a.input);
  in_pieces(a.shape, [&](const Piece& piece) {
    if (pixels == 1) {  // vectors: the lanes of a block lie side by side
      const int64_t at = piece.begin;
      return output.put_or_add(at, load(input + at) * of_plane(a.factor, a.shape, piece.plane), a.accumulate);
    }
    const int64_t b = piece.plane % blocks, channels = smaller(kLanes, a.shape.channels - b * kLanes);
    const float* const planes = a.factor + (piece.plane / blocks * a.shape.channels + b * kLanes) * pixels;
    for (int64_t p = piece.first; p < piece.last; p += kLanes) {
      const int64_t count = smaller(kLanes, piece.last - p);
      Floats factors[kLanes];
      load_planes(planes + p, pixels, channels, count, factors);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = (piece.plane * pixels + p + i) * kLanes;
        output.put_or_add(at, load(input + at) * factors[i], a.accumulate);
      }
    }
  });
}

template <typename T>
void scale_samples_of(const ScaleSamples& a) {
  a.per_element ? scale_elements<T>(a) : scale_whole_samples<T>(a);
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(scale_channels_forward, ScaleChannelsForward, scale_channels)
TRAINYARD_KERNEL_OF_TYPES(scale_channels_backward, ScaleChannelsBackward, scale_channels_back)
TRAINYARD_KERNEL_OF_TYPES(scale_samples, ScaleSamples, scale_samples_of)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
