// G filter G^T for the weights, and its transpose for their gradient.
#include <omp.h>

#include "trainyard/nn/cpu/convolution/winograd_bf16/transforms.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {

[[gnu::always_inline]] inline int64_t padded(int64_t channels) {
  return (channels + kLanes - 1) / kLanes * kLanes;
}

// Loads sixteen filters, one a lane, that follow one another from `plain`. Those beyond `count` become zero.
[[gnu::always_inline]] inline void load_filters(const float* plain, int64_t count, Floats (&filter)[3][3]) {
  const __m512i ninth =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(9));
  for (int e = 0; e < 9; ++e) {
    filter[e / 3][e % 3] = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes_before(count), ninth, plain + e, 4);
  }
}

// Where a pair lies, counted in pairs, in [point][panel][pair of summed channels][column of the panel].
struct Place {
  int64_t summed, columns;  // channels, padded
  [[gnu::always_inline]] int64_t at(int64_t point, int64_t pair, int64_t column) const {
    const int64_t panel = column / kPanel * kPanel, width = smaller(kPanel, columns - panel);
    return point * summed / 2 * columns + panel * (summed / 2) + pair * width + column - panel;
  }
};

template <int tile>
void pack_forward_tile(const Pack& a) {
  constexpr int kSide = tile + 2;
  const Place place = {.summed = padded(a.in_channels), .columns = padded(a.out_channels)};
  auto* const packed = static_cast<uint32_t*>(a.packed);
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t out = 0; out < place.columns; ++out) {
    for (int64_t in = 0; in < place.summed; in += kLanes) {
      Floats g[3][3], u[kSide][kSide];
      load_filters(a.plain + (out * a.in_channels + in) * 9, out < a.out_channels ? a.in_channels - in : 0, g);
      transform_filters<tile>(g, u);
      for (int point = 0; point < kSide * kSide; ++point) {
        uint32_t pairs[kLanes / 2];
        store_bfloats(reinterpret_cast<uint16_t*>(pairs), u[point / kSide][point % kSide]);
        for (int64_t p = 0; p < kLanes / 2; ++p) packed[place.at(point, in / 2 + p, out)] = pairs[p];
      }
    }
  }
}

template <int tile>
void pack_backward_tile(const Pack& a) {
  constexpr int kSide = tile + 2;
  const Place place = {.summed = padded(a.out_channels), .columns = padded(a.in_channels)};
  auto* const packed = static_cast<uint32_t*>(a.packed);
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t pair = 0; pair < place.summed / 2; ++pair) {
    for (int64_t in = 0; in < place.columns; in += kLanes) {
      Floats u[2][kSide][kSide];
      for (int64_t k = 0; k < 2; ++k) {
        const int64_t out = 2 * pair + k;
        Floats g[3][3], turned[3][3];
        load_filters(a.plain + (out * a.in_channels + in) * 9, out < a.out_channels ? a.in_channels - in : 0, g);
        for (int e = 0; e < 9; ++e) turned[e / 3][e % 3] = g[2 - e / 3][2 - e % 3];
        transform_filters<tile>(turned, u[k]);
      }
      for (int point = 0; point < kSide * kSide; ++point) {
        store_pairs(packed + place.at(point, pair, in), u[0][point / kSide][point % kSide],
                    u[1][point / kSide][point % kSide]);
      }
    }
  }
}

template <int tile>
void unpack_tile(const Unpack& a) {
  constexpr int kSide = tile + 2;
  const int64_t in_padded = padded(a.in_channels), out_padded = padded(a.out_channels);
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t block = 0; block < out_padded / kLanes; ++block) {
    for (int64_t in = 0; in < a.in_channels; ++in) {
      Floats u[kSide][kSide], g[3][3];
      for (int point = 0; point < kSide * kSide; ++point) {
        u[point / kSide][point % kSide] =
            _mm512_loadu_ps(a.gradient + (point * in_padded + in) * out_padded + block * kLanes);
      }
      transform_filter_gradient<tile>(u, g);
      float lanes[9][kLanes];
      for (int e = 0; e < 9; ++e) _mm512_storeu_ps(lanes[e], g[e / 3][e % 3]);
      const int64_t real = smaller(kLanes, a.out_channels - block * kLanes);
      for (int64_t k = 0; k < real; ++k) {
        float* const to = a.plain + ((block * kLanes + k) * a.in_channels + in) * 9;
        for (int e = 0; e < 9; ++e) to[e] = lanes[e][k];
      }
    }
  }
}

}  // namespace

void pack_forward(const Pack& a) {
  with_tile(a.tile, [&]<int tile>() { pack_forward_tile<tile>(a); });
}

// Packs the same filters turned by half a turn, with inputs for outputs.
void pack_backward(const Pack& a) {
  with_tile(a.tile, [&]<int tile>() { pack_backward_tile<tile>(a); });
}

void unpack(const Unpack& a) {
  with_tile(a.tile, [&]<int tile>() { unpack_tile<tile>(a); });
}

}  // namespace trainyard::nn::cpu::winograd_bf16
