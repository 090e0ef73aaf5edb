// G filter G^T for the weights, and its transpose for their gradient.
#include <omp.h>

#include "trainyard/nn/cpu/float_winograd/tile.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

[[gnu::always_inline]] inline int64_t padded(int64_t channels) {
  return (channels + kLanes - 1) / kLanes * kLanes;
}

// Loads one filter a lane, `stride` elements apart; those beyond `count` become zero.
[[gnu::always_inline]] inline void load_filters(const float* plain, int64_t stride, int64_t count, bool turned,
                                                Floats (&filter)[3][3]) {
  float lanes[9][kLanes] = {};
  for (int64_t c = 0; c < smaller(count, kLanes); ++c) {
    for (int e = 0; e < 9; ++e) lanes[e][c] = plain[c * stride + e];
  }
  for (int e = 0; e < 9; ++e) filter[e / 3][e % 3] = load(lanes[turned ? 8 - e : e]);
}

// G filter G^T
[[gnu::always_inline]] inline void transform_filters(const Floats (&g)[3][3], Floats (&u)[kSide][kSide]) {
  Floats rows[kSide][3];
  for (int j = 0; j < 3; ++j) {
    const Floats column[3] = {g[0][j], g[1][j], g[2][j]};
    Floats transformed[kSide];
    transform_filter(column, transformed);
    for (int i = 0; i < kSide; ++i) rows[i][j] = transformed[i];
  }
  for (int i = 0; i < kSide; ++i) transform_filter(rows[i], u[i]);
}

}  // namespace

// Packed weights lie as multiply_points() of forward.cpp reads them: [point][panel][summed channel][column].
void float_winograd_pack(const FloatWinogradPack& a) {
  const int64_t summed_plain = a.backward ? a.out_channels : a.in_channels;
  const int64_t columns_plain = a.backward ? a.in_channels : a.out_channels;
  const int64_t out_stride = a.in_channels * 9, summed_stride = a.backward ? out_stride : 9,
                column_stride = a.backward ? 9 : out_stride;
  const int64_t summed = padded(summed_plain), columns = padded(columns_plain);
#pragma omp parallel for schedule(static)
  for (int64_t column = 0; column < columns; column += kLanes) {
    const int64_t panel = column / kPanel * kPanel, width = smaller(kPanel, columns - panel);
    for (int64_t k = 0; k < summed; ++k) {
      Floats g[3][3], u[kSide][kSide];
      load_filters(a.plain + k * summed_stride + column * column_stride, column_stride,
                   k < summed_plain ? columns_plain - column : 0, a.backward, g);
      transform_filters(g, u);
      float* const to = a.packed + panel * summed + k * width + column - panel;
      for (int point = 0; point < kPoints; ++point) {
        store(to + point * summed * columns, u[point / kSide][point % kSide]);
      }
    }
  }
}

void float_winograd_unpack(const FloatWinogradUnpack& a) {
  const int64_t in_padded = padded(a.in_channels), out_padded = padded(a.out_channels);
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < out_padded; block += kLanes) {
    for (int64_t in = 0; in < a.in_channels; ++in) {
      Floats u[kSide][kSide], g[3][3];
      for (int point = 0; point < kPoints; ++point) {
        u[point / kSide][point % kSide] = load(a.gradient + (point * in_padded + in) * out_padded + block);
      }
      transform_square(transform_back, u, g);
      float lanes[9][kLanes];
      for (int e = 0; e < 9; ++e) store(lanes[e], g[e / 3][e % 3]);
      for (int64_t c = 0; c < smaller(kLanes, a.out_channels - block); ++c) {
        float* const to = a.plain + ((block + c) * a.in_channels + in) * 9;
        for (int e = 0; e < 9; ++e) to[e] = lanes[e][c];
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
