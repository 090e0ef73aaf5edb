// In float (strassen.h).
#include "trainyard/nn/cpu/convolution/strassen/kernel.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void strassen_forward(const StrassenForward& a) {
  strassen::forward<float>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
