// Products of bytes of a map with weights, summed in int32. Follows the rules of nn/cpu/simd/compiled_for.h.
//
// A word is 32 bits of a pixel's neighbouring channels: the registers that hold sums have one lane for each output
// channel, and each step multiplies one word in all lanes with a register of weights. A `Dot` says what a word is.
#pragma once

#include "trainyard/nn/cpu/simd/quantized_arguments.h"
#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// A word is four bytes. The instruction is written out, so that one compilation serves processors with and without it.
struct DotOfBytes {
  using Element = uint8_t;
  using Weight = int8_t;
  static constexpr int64_t kInWord = 4;
  static constexpr bool kReadsMaps = true;  // where they lie, if the window lets it
  [[gnu::always_inline]] static Ints add(Ints sums, Ints word, Ints weights) {
#if defined(TRAINYARD_KERNELS_AVX512)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(word), "v"(weights));
#else
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(word), "x"(weights));
#endif
    return sums;
  }
};

// A word is a pair of 16 bits: the products of bytes that are added in 16 bits would saturate.
struct DotOfPairs {
  using Element = int16_t;
  using Weight = int16_t;
  static constexpr int64_t kInWord = 2;
  static constexpr bool kReadsMaps = false;
  // Written out as well: compilers change the order of additions of integers, and then keep products in memory. The sum
  // is modulo 2^32.
  [[gnu::always_inline]] static Ints add(Ints sums, Ints word, Ints weights) {
    Ints products;
#if defined(TRAINYARD_KERNELS_AVX512)
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sums), "=&v"(products) : "v"(word), "v"(weights));
#else
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(word), "x"(weights));
#endif
    return sums;
  }
};

[[gnu::always_inline]] inline Ints load_ints(const void* from) {
  Ints value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
[[gnu::always_inline]] inline void store_ints(void* to, Ints value) {
  __builtin_memcpy(to, &value, sizeof(value));
}
// Returns the word at `from` in all lanes.
[[gnu::always_inline]] inline Ints fill_word(const void* from) {
  int32_t word;
  __builtin_memcpy(&word, from, sizeof(word));
  return Ints{} + word;
}

// Weights are packed in panels of so many blocks of output channels, of which the last may have fewer:
// [panel][input block][place in the window][word][block of the panel][output channel][channel of the word].
constexpr int64_t kQuantizedPanelBlocks = 2;

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
