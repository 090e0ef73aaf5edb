// Products of bfloat16, for processors with AVX512_BF16: of pairs of channels of one pixel, so what is not finite stays
// in the sums that it belongs to. Follows the rules of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/products.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

template <>
struct Products<Bfloat16> {
  static constexpr int64_t kStep = 2;
  using Weights = __m512bh;
  [[gnu::always_inline]] static Weights weights(const Bfloat16* from) {
    return __builtin_bit_cast(__m512bh, _mm512_loadu_si512(from));
  }
  [[gnu::always_inline]] static __m512bh value(const Bfloat16* from) {
    int32_t pair;
    __builtin_memcpy(&pair, from, sizeof(pair));
    return __builtin_bit_cast(__m512bh, _mm512_set1_epi32(pair));
  }
  [[gnu::always_inline]] static Floats add(__m512bh value, Weights weights, Floats sum) {
    return _mm512_dpbf16_ps(sum, value, weights);
  }
  // Rounds subnormal numbers to zero, which the products take them for anyway.
  [[gnu::always_inline]] static void keep(Bfloat16* to, Floats value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(value)));
  }
};

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
