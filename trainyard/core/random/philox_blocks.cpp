#include "trainyard/core/random/philox_blocks.h"

#include <immintrin.h>

#include "trainyard/core/random/random.h"

namespace trainyard::core {
namespace {

// Four blocks side by side: each 64-bit lane holds one of a block's numbers in its lower half. What is in the upper
// half does not matter, for the multiplication does not read it; so a product serves as two numbers without being taken
// apart.
struct FourBlocks {
  __m256i a, b, c, d;
};

inline FourBlocks mixed(FourBlocks x, std::array<uint32_t, 2> key) {
  const __m256i multiplier0 = _mm256_set1_epi64x(0xd2511f53), multiplier1 = _mm256_set1_epi64x(0xcd9e8d57);
  for (int round = 0; round < 10; ++round) {
    const __m256i product0 = _mm256_mul_epu32(x.a, multiplier0), product1 = _mm256_mul_epu32(x.c, multiplier1);
    const __m256i key0 = _mm256_set1_epi64x(key[0]), key1 = _mm256_set1_epi64x(key[1]);
    x.a = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), x.b), key0);
    x.b = product1;
    x.c = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), x.d), key1);
    x.d = product0;
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return x;
}

inline void store(const FourBlocks& x, uint32_t* out) {
  const __m256i ab = _mm256_blend_epi32(x.a, _mm256_slli_epi64(x.b, 32), 0xaa);
  const __m256i cd = _mm256_blend_epi32(x.c, _mm256_slli_epi64(x.d, 32), 0xaa);
  const __m256i even = _mm256_unpacklo_epi64(ab, cd), odd = _mm256_unpackhi_epi64(ab, cd);  // blocks 0, 2 and 1, 3
  auto* const to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

}  // namespace

void philox4x32_blocks(const std::array<uint32_t, 4>& counter, std::array<uint32_t, 2> key, uint32_t* out,
                       int64_t blocks) {
  const uint64_t start = counter[0] | uint64_t{counter[1]} << 32;
  const __m256i c = _mm256_set1_epi64x(counter[2]), d = _mm256_set1_epi64x(counter[3]);
  int64_t done = 0;
  // Two times four at once: a round waits for its products, and the other four fill the wait.
  for (; done + 8 <= blocks; done += 8) {
    const __m256i count = _mm256_add_epi64(
        _mm256_set1_epi64x(static_cast<int64_t>(start + static_cast<uint64_t>(done))), _mm256_setr_epi64x(0, 1, 2, 3));
    const __m256i next = _mm256_add_epi64(count, _mm256_set1_epi64x(4));
    const FourBlocks first = mixed({count, _mm256_srli_epi64(count, 32), c, d}, key);
    const FourBlocks second = mixed({next, _mm256_srli_epi64(next, 32), c, d}, key);
    store(first, out + 4 * done);
    store(second, out + 4 * done + 16);
  }
  for (; done < blocks; ++done) {
    const uint64_t count = start + static_cast<uint64_t>(done);
    const auto block =
        philox4x32({static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), counter[2], counter[3]}, key);
    for (size_t i = 0; i < 4; ++i) out[4 * done + static_cast<int64_t>(i)] = block[i];
  }
}

}  // namespace trainyard::core
