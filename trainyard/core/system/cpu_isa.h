// Limits the processor's instruction sets that this process uses. The environment variable TRAINYARD_MAX_CPU_ISA hides
// the higher ones from everything, so that any machine can compute what a smaller one would:
//
//   value         our kernels, and oneDNN's   LibTorch's kernels, and MKL's
//   avx2          AVX2                        AVX2
//   avx512        AVX-512 without BF16        AVX-512
//   auto, unset   all that the processor has
//
// A limit above what the processor has changes nothing.
//
// When the library is loaded, it sets the corresponding variables of oneDNN, LibTorch and MKL before they read them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainyard::core {

inline constexpr const char* kMaxCpuIsaVariable = "TRAINYARD_MAX_CPU_ISA";

enum class CpuIsaLimit { kNone, kAvx2, kAvx512 };

// Reads "auto" or "" (the same), "avx2" or "avx512". Throws kInvalidArgument for anything else, with the allowed values
// and with `source`, the name of the flag or variable.
CpuIsaLimit parse_cpu_isa_limit(std::string_view text, std::string_view source = kMaxCpuIsaVariable);
std::string_view to_string(CpuIsaLimit limit);  // "auto", "avx2", "avx512"

// Returns the limit of this process: what the environment said when the library was loaded. Throws as above.
CpuIsaLimit cpu_isa_limit();

// Returns true where the processor has AVX-512 F, BW, VL and DQ, and the limit allows them.
bool cpu_has_avx512();
// Returns true where the processor has AVX512_BF16, and the limit allows it.
bool cpu_has_avx512_bf16();

// Returns in one line what the processor may be used for: "AVX2", or "AVX2, limited by TRAINYARD_MAX_CPU_ISA=avx2 (the
// processor has AVX-512 with BF16)".
std::string describe_cpu_isa();

}  // namespace trainyard::core
