// The gradient of a bias: the sum of a map over samples and pixels.
#pragma once

#include "trainyard/nn/cpu/convolution/winograd_bf16/tile.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

struct BiasGradient {
  int64_t batch = 0, blocks = 0, height = 0, width = 0;
  const uint16_t* gradient = nullptr;  // a bfloat16 map
  float* sums = nullptr;               // [count]
  int64_t count = 0;
};

// Called by all threads of a team, which share the channel blocks. Rows are summed in float, and these sums in double.
[[gnu::always_inline]] inline void sum_gradients(const BiasGradient& a) {
  const int64_t pixels = a.height * a.width;
#pragma omp for schedule(static)
  for (int64_t b = 0; b < a.blocks; ++b) {
    __m512d low = _mm512_setzero_pd(), high = low;
    for (int64_t n = 0; n < a.batch; ++n) {
      const uint16_t* from = a.gradient + (n * a.blocks + b) * pixels * kLanes;
      for (int64_t row = 0; row < a.height; ++row) {
        Floats sum = _mm512_setzero_ps();
        for (int64_t column = 0; column < a.width; ++column, from += kLanes) sum += load_bfloats(from);
        low += _mm512_cvtps_pd(_mm512_castps512_ps256(sum));
        high += _mm512_cvtps_pd(_mm512_extractf32x8_ps(sum, 1));
      }
    }
    const __m512 sum = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
    _mm512_mask_storeu_ps(a.sums + b * kLanes, lanes_before(a.count - b * kLanes), sum);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::winograd_bf16
