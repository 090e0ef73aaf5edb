#include "trainyard/core/system/cpu_isa.h"

#include <cstdlib>

#include <fmt/format.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

struct Setting {
  const char *name, *avx2, *avx512;
};
// The variables that each library reads when it is first used. oneDNN 2.x also reads the older DNNL_ name.
constexpr Setting kSettings[] = {{"ONEDNN_MAX_CPU_ISA", "AVX2", "AVX512_CORE"},
                                 {"DNNL_MAX_CPU_ISA", "AVX2", "AVX512_CORE"},
                                 {"ATEN_CPU_CAPABILITY", "avx2", "avx512"},
                                 {"MKL_ENABLE_INSTRUCTIONS", "AVX2", "AVX512"}};

std::optional<CpuIsaLimit> limit_named(std::string_view text) {
  if (text.empty() || text == "auto") return CpuIsaLimit::kNone;
  if (text == "avx2") return CpuIsaLimit::kAvx2;
  if (text == "avx512") return CpuIsaLimit::kAvx512;
  return std::nullopt;
}

// As the environment said at first: what a program sets later changes nothing. A plain array needs no initialisation,
// which the constructor below would come before.
char own_limit[32];

bool processor_has_avx512() {
  __builtin_cpu_init();  // for the constructor below, which may run before the compiler's own
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

// Runs when the library is loaded, before any thread of ours and any use of oneDNN or LibTorch. An unknown value
// becomes an error later, when it can be reported.
[[gnu::constructor]] void pass_limit_on() {
  const char* const given = std::getenv(kMaxCpuIsaVariable);
  if (given == nullptr) return;
  std::string_view(given).copy(own_limit, sizeof own_limit - 1);
  const std::optional<CpuIsaLimit> limit = limit_named(given);
  if (!limit || *limit == CpuIsaLimit::kNone) return;
  // LibTorch takes its variable as an order, not as a limit: on a processor without AVX-512 "avx512" ends the process
  // with an illegal instruction.
  const bool avx512 = *limit == CpuIsaLimit::kAvx512 && processor_has_avx512();
  for (const Setting& setting : kSettings) {
    ::setenv(setting.name, avx512 ? setting.avx512 : setting.avx2, /*overwrite=*/1);
  }
}

bool processor_has_avx512_bf16() {
  return processor_has_avx512() && __builtin_cpu_supports("avx512bf16") != 0;
}

const char* name_of(bool avx512, bool bf16) {
  if (bf16) return "AVX-512 with BF16";
  return avx512 ? "AVX-512" : "AVX2";
}

}  // namespace

CpuIsaLimit parse_cpu_isa_limit(std::string_view text, std::string_view source) {
  if (const auto limit = limit_named(text)) return *limit;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "unknown instruction set",
                                            .where = std::string(source),
                                            .expected = "auto, avx2 or avx512",
                                            .actual = std::string(text)});
}

std::string_view to_string(CpuIsaLimit limit) {
  return enum_name<CpuIsaLimit::kAvx512>(limit, {"auto", "avx2", "avx512"});
}

CpuIsaLimit cpu_isa_limit() {
  return parse_cpu_isa_limit(own_limit);
}

bool cpu_has_avx512() {
  return processor_has_avx512() && cpu_isa_limit() != CpuIsaLimit::kAvx2;
}

bool cpu_has_avx512_bf16() {
  return processor_has_avx512_bf16() && cpu_isa_limit() == CpuIsaLimit::kNone;
}

std::string describe_cpu_isa() {
  std::string used = name_of(cpu_has_avx512(), cpu_has_avx512_bf16());
  const CpuIsaLimit limit = cpu_isa_limit();
  if (limit == CpuIsaLimit::kNone) return used;
  return fmt::format("{}, limited by {}={} (the processor has {})", used, kMaxCpuIsaVariable, to_string(limit),
                     name_of(processor_has_avx512(), processor_has_avx512_bf16()));
}

}  // namespace trainyard::core
