// In float, with AVX-512 (inverted_residual.h).
#if defined(TRAINYARD_KERNELS_AVX512)
#include "trainyard/nn/cpu/convolution/inverted_residual/kernel.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void inverted_residual_forward(const InvertedResidualForward& a) {
  make_inverted_residual<float>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
#endif
