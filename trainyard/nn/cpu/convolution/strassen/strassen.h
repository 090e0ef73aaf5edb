// The kernels of Strassen's convolutions (arguments.h), compiled once for each instruction set, and a function that
// chooses by isa(): nn/cpu/simd/kernels.h says why and how.
#pragma once

#include "trainyard/nn/cpu/convolution/strassen/arguments.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {

namespace avx2 {
void strassen_forward(const StrassenForward& a);
void strassen_pack(const StrassenPack& a);
}  // namespace avx2
namespace avx512 {
void strassen_forward(const StrassenForward& a);
void strassen_pack(const StrassenPack& a);
void bf16_strassen_forward(const StrassenForward& a);  // with AVX512_BF16
}  // namespace avx512

inline void strassen_forward(const StrassenForward& a, DataType dtype) {
  if (dtype == DataType::kBfloat16) return avx512::bf16_strassen_forward(a);
  isa() == Isa::kAvx2 ? avx2::strassen_forward(a) : avx512::strassen_forward(a);
}

inline void strassen_pack(const StrassenPack& a) {
  isa() == Isa::kAvx2 ? avx2::strassen_pack(a) : avx512::strassen_pack(a);
}

}  // namespace trainyard::nn::cpu
