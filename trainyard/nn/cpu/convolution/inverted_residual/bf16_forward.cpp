// In bfloat16, for processors with AVX512_BF16.
#include "trainyard/nn/cpu/convolution/inverted_residual/kernel.h"
#include "trainyard/nn/cpu/simd/bf16_products.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void bf16_inverted_residual_forward(const InvertedResidualForward& a) {
  make_inverted_residual<Bfloat16>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
