// In bfloat16, for processors with AVX512_BF16.
#include "trainyard/nn/cpu/convolution/strassen/kernel.h"
#include "trainyard/nn/cpu/simd/bf16_products.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void bf16_strassen_forward(const StrassenForward& a) {
  strassen::forward<Bfloat16>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
