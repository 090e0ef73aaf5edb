// Winograd's convolution of bytes, which quantized_convolution() calls. Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/compiled_for.h"
#include "trainyard/nn/cpu/simd/quantized_arguments.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void quantized_winograd(const QuantizedConvolution& a);
int64_t quantized_winograd_scratch_bytes(const QuantizedConvolution& a);

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
