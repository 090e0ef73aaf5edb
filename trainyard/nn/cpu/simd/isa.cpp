#include "trainyard/nn/cpu/simd/isa.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/system/cpu_isa.h"

namespace trainyard::nn::cpu {
namespace {

// In oneDNN 2.6 and later, the values of the enumeration are sets of bits, one for each feature.
bool includes(dnnl::cpu_isa isa, dnnl::cpu_isa wanted) {
  return (static_cast<unsigned>(isa) & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

Isa detect() {
  core::cpu_isa_limit();  // throws for an unknown limit; oneDNN reads the known ones itself
  const dnnl::cpu_isa effective = dnnl::get_effective_cpu_isa();
  if (includes(effective, dnnl::cpu_isa::avx512_core_bf16)) return Isa::kAvx512Bf16;
  return includes(effective, dnnl::cpu_isa::avx512_core) ? Isa::kAvx512 : Isa::kAvx2;
}

// The kernel keeps the matrix unit's registers, 8 KiB, for threads of processes that asked for them.
bool may_use_tiles() {
#if defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023,
                kTileData = 18;  // ARCH_REQ_XCOMP_PERM of <asm/prctl.h>, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

Isa isa() {
  static const Isa value = detect();
  return value;
}

bool has_amx() {
  static const bool value = isa() == Isa::kAvx512Bf16 &&
                            includes(dnnl::get_effective_cpu_isa(), dnnl::cpu_isa::avx512_core_amx) && may_use_tiles();
  return value;
}

bool has_vnni() {
  static const bool value = includes(dnnl::get_effective_cpu_isa(),
                                     isa() == Isa::kAvx2 ? dnnl::cpu_isa::avx2_vnni : dnnl::cpu_isa::avx512_core_vnni);
  return value;
}

std::string describe_isa() {
  return std::string(to_string(isa())) + (has_amx() ? " and AMX" : "");
}

std::string_view to_string(Isa isa) {
  return core::enum_name<Isa::kAvx512Bf16>(isa, {"AVX2", "AVX-512", "AVX-512 with BF16"});
}

int64_t channel_block() {
  return isa() == Isa::kAvx2 ? 8 : 16;
}

}  // namespace trainyard::nn::cpu
