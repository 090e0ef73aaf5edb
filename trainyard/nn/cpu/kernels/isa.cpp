#include "trainyard/nn/cpu/kernels/isa.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "trainyard/core/system/cpu_isa.h"

namespace trainyard::nn::cpu {
namespace {

// In oneDNN 2.6 and later, the values of the enumeration are sets of bits, one for each feature.
bool includes(dnnl::cpu_isa isa, dnnl::cpu_isa wanted) {
  return (static_cast<unsigned>(isa) & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

Isa detect() {
  core::cpu_isa_limit();  // throws for an unknown limit; oneDNN obeys the known ones itself
  const dnnl::cpu_isa effective = dnnl::get_effective_cpu_isa();
  if (includes(effective, dnnl::cpu_isa::avx512_core_bf16)) return Isa::kAvx512Bf16;
  return includes(effective, dnnl::cpu_isa::avx512_core) ? Isa::kAvx512 : Isa::kAvx2;
}

}  // namespace

Isa isa() {
  static const Isa value = detect();
  return value;
}

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "AVX2";
    case Isa::kAvx512:
      return "AVX-512";
    case Isa::kAvx512Bf16:
      return "AVX-512 with BF16";
  }
  return "unknown";
}

int64_t channel_block() {
  return isa() == Isa::kAvx2 ? 8 : 16;
}

}  // namespace trainyard::nn::cpu
