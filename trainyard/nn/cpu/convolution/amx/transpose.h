// Transposes 16 vectors of 16 numbers of 32 bits.
#pragma once

#include "trainyard/nn/cpu/convolution/amx/tiles.h"

namespace trainyard::nn::cpu::amx {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

[[gnu::always_inline]] inline void transpose(__m512i (&rows)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // rows[4 * a + b] holds, in its quarter q, column 4 * q + b of rows 4 * a to 4 * a + 3.
  for (int b = 0; b < 4; ++b) {
    const __m512i low = _mm512_shuffle_i32x4(rows[b], rows[4 + b], 0x88);   // quarters 0 and 2 of each
    const __m512i high = _mm512_shuffle_i32x4(rows[b], rows[4 + b], 0xDD);  // 1 and 3
    const __m512i low2 = _mm512_shuffle_i32x4(rows[8 + b], rows[12 + b], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(rows[8 + b], rows[12 + b], 0xDD);
    t[b] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[4 + b] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[8 + b] = _mm512_shuffle_i32x4(low, low2, 0xDD);
    t[12 + b] = _mm512_shuffle_i32x4(high, high2, 0xDD);
  }
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

}  // namespace
}  // namespace trainyard::nn::cpu::amx
