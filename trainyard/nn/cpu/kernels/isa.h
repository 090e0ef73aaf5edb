// The instruction set that the CPU plan computes with: the highest that the processor, oneDNN and TRAINYARD_MAX_CPU_ISA
// (core/system/cpu_isa.h) allow.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

enum class Isa : uint8_t { kAvx2, kAvx512, kAvx512Bf16 };

// Returns the instruction set, which the first call determines. Throws kInvalidArgument for an unknown
// TRAINYARD_MAX_CPU_ISA.
Isa isa();
const char* to_string(Isa isa);  // "AVX2", ...

// Returns the lanes of a channel block: 16 with AVX-512, 8 with AVX2. With the other block, oneDNN has its slow
// reference only.
int64_t channel_block();

}  // namespace trainyard::nn::cpu
