// The instruction set that the CPU plan computes with: the highest that the processor, oneDNN and TRAINYARD_MAX_CPU_ISA
// (core/system/cpu_isa.h) allow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::nn::cpu {

enum class Isa : uint8_t { kAvx2, kAvx512, kAvx512Bf16 };

// Returns the instruction set, which the first call determines. Throws kInvalidArgument for an unknown
// TRAINYARD_MAX_CPU_ISA.
Isa isa();
std::string_view to_string(Isa isa);  // "AVX2", ...

// Returns whether the processor multiplies matrices of bfloat16 (AMX) and the system permits it for this process; the
// first call requests it. Any limit that hides AVX512_BF16 or AMX from oneDNN hides it here, too.
bool has_amx();
// Returns whether the processor multiplies bytes and adds four products to a sum, for vectors of isa(): AVX512_VNNI
// with AVX-512, AVX-VNNI with AVX2. Any limit that hides them from oneDNN hides them here, too.
bool has_vnni();
// Returns the instruction sets that select kernels: to_string(isa()), and AMX if the processor has it.
std::string describe_isa();

// Returns the lanes of a channel block: 16 with AVX-512, 8 with AVX2. With the other block, oneDNN only has its slow
// reference.
int64_t channel_block();

}  // namespace trainyard::nn::cpu
