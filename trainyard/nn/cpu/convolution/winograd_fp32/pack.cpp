// G filter G^T for the weights, and its transpose for their gradient.
#include <omp.h>

#include "trainyard/nn/cpu/convolution/winograd_fp32/tile.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

[[gnu::always_inline]] inline int64_t padded(int64_t channels) {
  return (channels + kLanes - 1) / kLanes * kLanes;
}

// Loads one filter a lane, `stride` elements apart; those beyond `count` become zero.
[[gnu::always_inline]] inline void load_filters(const float* plain, int64_t stride, int64_t count, bool turned,
                                                float (&filter)[9][kLanes]) {
  for (int e = 0; e < 9; ++e) store(filter[e], Floats{});
  for (int64_t c = 0; c < smaller(count, kLanes); ++c) {
    for (int e = 0; e < 9; ++e) filter[turned ? 8 - e : e][c] = plain[c * stride + e];
  }
}

template <int tile>
void pack(const WinogradFp32Pack& a) {
  const int64_t summed_plain = a.backward ? a.out_channels : a.in_channels;
  const int64_t columns_plain = a.backward ? a.in_channels : a.out_channels;
  const int64_t out_stride = a.in_channels * 9, summed_stride = a.backward ? out_stride : 9,
                column_stride = a.backward ? 9 : out_stride;
  const int64_t summed = padded(summed_plain), columns = padded(columns_plain);
  const int64_t point_elements = WinogradFp32Shape{.in_channels = summed, .out_channels = columns}.point_elements();
#pragma omp parallel for schedule(static)
  for (int64_t column = 0; column < columns; column += kLanes) {
    const int64_t panel = column / kPanel * kPanel, width = smaller(kPanel, columns - panel);
    for (int64_t k = 0; k < summed; ++k) {
      float filter[9][kLanes];
      load_filters(a.plain + k * summed_stride + column * column_stride, column_stride,
                   k < summed_plain ? columns_plain - column : 0, a.backward, filter);
      float* const to = a.packed + panel * summed + k * width + column - panel;
      transform_square<Filter<tile>>(
          [&](int i, int j) __attribute__((always_inline)) { return load(filter[i * 3 + j]); },
          [&](int i, int j, Floats value)
              __attribute__((always_inline)) { store(to + (i * (tile + 2) + j) * point_elements, value); });
    }
  }
}

constexpr int kAhead = 2;  // input channels; the processor does not see by itself which numbers come next

template <int tile>
void unpack(const WinogradFp32Unpack& a) {
  constexpr int kPoints = (tile + 2) * (tile + 2);
  const int64_t in_padded = padded(a.in_channels), out_padded = padded(a.out_channels);
  const int64_t point_elements =
      WinogradFp32Shape{.in_channels = in_padded, .out_channels = out_padded}.point_elements();
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < out_padded; block += kLanes) {
    for (int64_t in = 0; in < a.in_channels; ++in) {
      float lanes[9][kLanes];
      const float* const from = a.gradient + in * out_padded + block;
      for (int p = 0; p < kPoints; ++p) __builtin_prefetch(from + p * point_elements + kAhead * out_padded);
      transform_square<FilterGradient<tile>>(
          [&](int i, int j)
              __attribute__((always_inline)) { return load(from + (i * (tile + 2) + j) * point_elements); },
          [&](int i, int j, Floats value) __attribute__((always_inline)) { store(lanes[i * 3 + j], value); });
      for (int64_t c = 0; c < smaller(kLanes, a.out_channels - block); ++c) {
        float* const to = a.plain + ((block + c) * a.in_channels + in) * 9;
        for (int e = 0; e < 9; ++e) to[e] = lanes[e][c];
      }
    }
  }
}

}  // namespace

// Packed weights lie as multiply_points() of forward.cpp reads them: [point][panel][summed channel][column].
void winograd_fp32_pack(const WinogradFp32Pack& a) {
  a.tile == 4 ? pack<4>(a) : pack<2>(a);
}

void winograd_fp32_unpack(const WinogradFp32Unpack& a) {
  a.tile == 4 ? unpack<4>(a) : unpack<2>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
