// Strassen's convolution of bytes, which quantized_convolution() calls. Follows the rules of
// nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/compiled_for.h"
#include "trainyard/nn/cpu/simd/quantized_arguments.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void quantized_strassen(const QuantizedConvolution& a);
int64_t quantized_strassen_scratch_bytes(const QuantizedConvolution& a);
void quantized_strassen_pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack);

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
