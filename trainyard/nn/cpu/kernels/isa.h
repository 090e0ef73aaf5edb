// Which instruction set the CPU plan computes with: the highest that the processor, oneDNN and its limit
// (DNNL_MAX_CPU_ISA, for tests of the smaller ones) allow. Decided once.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

enum class Isa : uint8_t { kAvx2, kAvx512, kAvx512Bf16 };

Isa isa();
const char* to_string(Isa isa);  // "AVX2", ...

// Lanes of a channel block: 16 with AVX-512, 8 with AVX2 (oneDNN falls to its slow reference with the other).
int64_t channel_block();

}  // namespace trainyard::nn::cpu
