// Loops that reach the most multiply-adds or the most memory traffic of one core, with the widest vectors of the
// processor. machine_limits.h measures them.
#pragma once

#include <cstdint>
#include <optional>

namespace trainyard::core {

// Runs independent chains of fused multiply-adds, acc += a * b in every lane, `iterations` times. There are enough
// chains to hide the instruction's latency. run() returns the sum of all lanes, which is flops_per_iteration / 2 *
// iterations * a * b as long as floats hold it.
struct FlopKernel {
  const char* name;  // "fp32, AVX-512"
  int64_t flops_per_iteration;
  double (*run)(int64_t iterations, float a, float b);
};
// Returns nothing where the processor lacks AVX2 or FMA.
std::optional<FlopKernel> fp32_kernel();
// Rounds a and b to bfloat16. Returns nothing where the processor lacks AVX512_BF16.
std::optional<FlopKernel> bf16_kernel();

// Memory loops over `count` floats, a multiple of 64, aligned to 64 bytes. Stores bypass the caches. They need AVX2.
bool memory_kernels_available();
double read_floats(const float* from, int64_t count);  // the sum, added up in floats
void copy_floats(float* to, const float* from, int64_t count);
void triad_floats(float* to, const float* b, const float* c, float scale, int64_t count);  // to = b + scale * c

}  // namespace trainyard::core
