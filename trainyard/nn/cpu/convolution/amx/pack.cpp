#include <omp.h>

#include "trainyard/nn/cpu/convolution/amx/transpose.h"

namespace trainyard::nn::cpu::amx {
namespace {

// Returns up to 16 floats that lie `apart` from one another, zeros behind the first `count`.
[[gnu::always_inline]] inline Floats load_apart(const float* from, int64_t apart, int64_t count) {
  const __mmask16 lanes = lanes_before(count);
  if (apart == 1) return _mm512_maskz_loadu_ps(lanes, from);
  const __m512i places = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                            _mm512_set1_epi32(static_cast<int>(apart)));
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, places, from, 4);
}

// Makes a tile whose columns are the forward's outputs: a weight's inputs lie behind one another.
[[gnu::always_inline]] inline void pack_forward(const float* plain, int64_t window, int64_t in_channels, int64_t inputs,
                                                int64_t outputs, uint8_t* to) {
  __m512i rows[16];
  for (int64_t o = 0; o < 16; ++o) {
    if (o >= outputs) {
      rows[o] = _mm512_setzero_si512();
      continue;
    }
    const float* const from = plain + o * in_channels * window;
    const Floats first = load_apart(from, window, inputs);
    const Floats second =
        inputs > kLanes ? load_apart(from + kLanes * window, window, inputs - kLanes) : _mm512_setzero_ps();
    rows[o] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  }
  transpose(rows);
  for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + i * 64, rows[i]);
}

// The same of an image's convolution: tap `place` is a row of the window.
[[gnu::always_inline]] inline void pack_image(const Geometry& g, const float* plain, int64_t place, int64_t first,
                                              int64_t outputs, uint8_t* to) {
  const int64_t apart = g.image_channels * g.window * g.image_window;
  for (int64_t i = 0; i < 16; ++i) {
    alignas(64) float pairs[2][16] = {};
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t channel = first + 2 * i + half;
      if (channel >= g.in_channels) continue;
      for (int64_t o = 0; o < outputs; ++o) {
        pairs[half][o] = plain[o * apart + place * g.image_window + g.image_weight(channel)];
      }
    }
    winograd_bf16::store_pairs(to + i * 64, _mm512_load_ps(pairs[0]), _mm512_load_ps(pairs[1]));
  }
}

// Makes a tile whose columns are the forward's inputs and whose pairs are its outputs.
[[gnu::always_inline]] inline void pack_backward(const float* plain, int64_t window, int64_t in_channels,
                                                 int64_t inputs, int64_t outputs, uint8_t* to) {
  for (int64_t i = 0; i < 16; ++i) {
    const float* const from = plain + 2 * i * in_channels * window;
    const Floats first = load_apart(from, window, 2 * i < outputs ? inputs : 0);
    const Floats second = load_apart(from + in_channels * window, window, 2 * i + 1 < outputs ? inputs : 0);
    winograd_bf16::store_pairs(to + i * 64, first, second);
  }
}

void unpack_image(const Unpack& a) {
  const Geometry& g = a.geometry;
  for (int64_t o = 0; o < g.out_channels; ++o) {
    float* const to = a.plain + o * g.image_channels * g.window * g.image_window;
    for (int64_t t = 0; t < g.window; ++t) {
      for (int64_t c = 0; c < g.in_channels; ++c) {
        const int64_t tile = (t * g.in_blocks + c / kLanes) * g.out_blocks + o / kLanes;
        to[g.taps[t].place * g.image_window + g.image_weight(c)] =
            a.gradient[tile * 256 + c % kLanes * kLanes + o % kLanes];
      }
    }
  }
}

}  // namespace

void pack(const Pack& a) {
  const Geometry& g = a.geometry;
  const int64_t pairs = g.in_pairs();
#pragma omp parallel for num_threads(a.threads) schedule(static)
  for (int64_t part = 0; part < g.out_blocks * pairs; ++part) {
    const int64_t block = part / pairs, pair = part % pairs;
    for (int64_t t = 0; t < g.window; ++t) {
      uint8_t* const to = static_cast<uint8_t*>(a.packed) + ((block * g.window + t) * pairs + pair) * kTileBytes;
      const int64_t columns = smaller(kLanes, g.out_channels - block * kLanes),
                    deep = smaller(2 * kLanes, g.in_channels - pair * 2 * kLanes);
      if (g.image_channels != 0) {
        pack_image(g, a.plain + block * kLanes * g.image_channels * g.window * g.image_window, g.taps[t].place,
                   pair * 2 * kLanes, columns, to);
      } else if (a.of_backward) {
        const float* const from =
            a.plain + (pair * 2 * kLanes * g.out_channels + block * kLanes) * g.window + g.taps[t].place;
        pack_backward(from, g.window, g.out_channels, columns, deep, to);
      } else {
        const float* const from =
            a.plain + (block * kLanes * g.in_channels + pair * 2 * kLanes) * g.window + g.taps[t].place;
        pack_forward(from, g.window, g.in_channels, deep, columns, to);
      }
    }
  }
}

void unpack(const Unpack& a) {
  const Geometry& g = a.geometry;
  if (g.image_channels != 0) return unpack_image(a);
  const __m512i places = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                            _mm512_set1_epi32(static_cast<int>(g.window)));
#pragma omp parallel for num_threads(a.threads) schedule(static)
  for (int64_t part = 0; part < g.out_blocks * g.in_blocks; ++part) {
    const int64_t out_block = part / g.in_blocks, in_block = part % g.in_blocks;
    const __mmask16 lanes = lanes_before(g.in_channels - in_block * kLanes);
    for (int64_t t = 0; t < g.window; ++t) {
      const float* const from = a.gradient + ((t * g.in_blocks + in_block) * g.out_blocks + out_block) * 256;
      __m512i rows[16];
      for (int64_t i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(from + i * kLanes);
      transpose(rows);
      const int64_t outputs = smaller(kLanes, g.out_channels - out_block * kLanes);
      float* to = a.plain + (out_block * kLanes * g.in_channels + in_block * kLanes) * g.window + g.taps[t].place;
      for (int64_t o = 0; o < outputs; ++o, to += g.in_channels * g.window) {
        const Floats values = _mm512_castsi512_ps(rows[o]);
        if (g.window == 1) {
          _mm512_mask_storeu_ps(to, lanes, values);
        } else {
          _mm512_mask_i32scatter_ps(to, lanes, places, values, 4);
        }
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::amx
