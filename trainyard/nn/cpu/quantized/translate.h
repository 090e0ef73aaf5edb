// Replaces bytes by those of a table. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/quantized/byte_lanes.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

#if defined(TRAINYARD_KERNELS_AVX512)
// A table of 256 bytes in registers. Its instruction (AVX512_VBMI) is written out, so that one compilation serves
// processors with and without it.
class TableInRegisters {
 public:
  explicit TableInRegisters(const uint8_t* table) {
    for (int i = 0; i < 4; ++i) quarters_[i] = _mm512_loadu_si512(table + 64 * i);
  }
  static bool is_supported() {
    static const bool supported = __builtin_cpu_supports("avx512vbmi") != 0;
    return supported;
  }
  [[gnu::always_inline]] __m512i operator()(__m512i bytes) const {
    __m512i low = bytes, high = bytes;  // the instruction replaces the indices, of which it takes the lower 7 bits
    __asm__("vpermi2b %2, %1, %0" : "+v"(low) : "v"(quarters_[0]), "v"(quarters_[1]));
    __asm__("vpermi2b %2, %1, %0" : "+v"(high) : "v"(quarters_[2]), "v"(quarters_[3]));
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(bytes), high);
  }

 private:
  __m512i quarters_[4];
};
#endif

// Writes to[i] = table[from[i]].
inline void translate(const uint8_t* from, const uint8_t* table, int64_t count, uint8_t* to) {
  int64_t i = 0;
#if defined(TRAINYARD_KERNELS_AVX512)
  if (TableInRegisters::is_supported()) {
    const TableInRegisters look_up(table);
    for (; i + 64 <= count; i += 64) _mm512_storeu_si512(to + i, look_up(_mm512_loadu_si512(from + i)));
  }
#endif
  for (; i < count; ++i) to[i] = table[from[i]];
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
