// Kernels that find the largest magnitude. They are compiled and selected like those of kernels.h.
#pragma once

#include "trainyard/nn/cpu/simd/arguments.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {

namespace avx2 {
void largest_magnitude(const LargestMagnitude& a);
void largest_row_sum(const LargestRowSum& a);
}  // namespace avx2
namespace avx512 {
void largest_magnitude(const LargestMagnitude& a);
void largest_row_sum(const LargestRowSum& a);
}  // namespace avx512

inline void largest_magnitude(const LargestMagnitude& a) {
  isa() == Isa::kAvx2 ? avx2::largest_magnitude(a) : avx512::largest_magnitude(a);
}
inline void largest_row_sum(const LargestRowSum& a) {
  isa() == Isa::kAvx2 ? avx2::largest_row_sum(a) : avx512::largest_row_sum(a);
}

}  // namespace trainyard::nn::cpu
