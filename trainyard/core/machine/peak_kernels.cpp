#include "trainyard/core/machine/peak_kernels.h"

#include <bit>
#include <cstring>

#include <immintrin.h>

#include "trainyard/core/system/cpu_isa.h"

// The functions are compiled for processors that the rest of the library does not ask for, and called where the
// processor has what they need.

namespace trainyard::core {
namespace {

// Zen 4 and the Xeons start at most two a cycle, each takes at most five cycles: ten chains; AVX2 has 16 registers.
constexpr int kChains = 12;

// Returns the sum over all lanes of all vectors. Goes through memory, because it is compiled without the vectors'
// instructions.
template <typename Vector, size_t count>
double sum_of(const Vector (&vectors)[count]) {
  double sum = 0;
  for (const Vector& vector : vectors) {
    float lanes[sizeof(Vector) / sizeof(float)];
    std::memcpy(lanes, &vector, sizeof(Vector));
    for (const float lane : lanes) sum += lane;
  }
  return sum;
}

[[gnu::target("avx2,fma")]] double run_avx2(int64_t iterations, float a, float b) {
  const __m256 va = _mm256_set1_ps(a), vb = _mm256_set1_ps(b);
  __m256 chains[kChains];
  for (__m256& chain : chains) chain = _mm256_setzero_ps();
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m256& chain : chains) chain = _mm256_fmadd_ps(va, vb, chain);
  }
  return sum_of(chains);
}

[[gnu::target("avx512f")]] double run_avx512(int64_t iterations, float a, float b) {
  const __m512 va = _mm512_set1_ps(a), vb = _mm512_set1_ps(b);
  __m512 chains[kChains];
  for (__m512& chain : chains) chain = _mm512_setzero_ps();
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m512& chain : chains) chain = _mm512_fmadd_ps(va, vb, chain);
  }
  return sum_of(chains);
}

// The upper half of a float is its bfloat16, cut off.
[[gnu::target("avx512f,avx512bf16")]] __m512bh bfloats(float value) {
  const auto bits = static_cast<int>(std::bit_cast<uint32_t>(value) >> 16);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits | bits << 16));
}

[[gnu::target("avx512f,avx512bf16")]] double run_bf16(int64_t iterations, float a, float b) {
  const __m512bh va = bfloats(a), vb = bfloats(b);
  __m512 chains[kChains];
  for (__m512& chain : chains) chain = _mm512_setzero_ps();
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m512& chain : chains) chain = _mm512_dpbf16_ps(chain, va, vb);
  }
  return sum_of(chains);
}

[[gnu::target("avx2")]] double read_avx2(const float* from, int64_t count) {
  constexpr int kStreams = 8;
  __m256 sums[kStreams];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  for (int64_t i = 0; i < count; i += 8 * kStreams) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) {
      sums[s] = _mm256_add_ps(sums[s], _mm256_load_ps(from + i + static_cast<ptrdiff_t>(8) * s));
    }
  }
  return sum_of(sums);
}

[[gnu::target("avx2")]] void copy_avx2(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 8) _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
  _mm_sfence();
}

[[gnu::target("avx2,fma")]] void triad_avx2(float* to, const float* b, const float* c, float scale, int64_t count) {
  const __m256 factor = _mm256_set1_ps(scale);
  for (int64_t i = 0; i < count; i += 8) {
    _mm256_stream_ps(to + i, _mm256_fmadd_ps(factor, _mm256_load_ps(c + i), _mm256_load_ps(b + i)));
  }
  _mm_sfence();
}

}  // namespace

std::optional<FlopKernel> fp32_kernel() {
  if (cpu_has_avx512()) return FlopKernel{"fp32, AVX-512", 2LL * 16 * kChains, run_avx512};
  if (!memory_kernels_available()) return std::nullopt;
  return FlopKernel{"fp32, AVX2", 2LL * 8 * kChains, run_avx2};
}

std::optional<FlopKernel> bf16_kernel() {
  if (!cpu_has_avx512_bf16()) return std::nullopt;
  return FlopKernel{"bf16, AVX512_BF16", 2LL * 32 * kChains, run_bf16};
}

bool memory_kernels_available() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

double read_floats(const float* from, int64_t count) {
  return read_avx2(from, count);
}

void copy_floats(float* to, const float* from, int64_t count) {
  copy_avx2(to, from, count);
}

void triad_floats(float* to, const float* b, const float* c, float scale, int64_t count) {
  triad_avx2(to, b, c, scale, count);
}

}  // namespace trainyard::core
