// A text as the value of each kind of flag, as a list of processors and as KMP_AFFINITY. What is accepted is written
// and read again as the same value.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/system/cpu_topology.h"
#include "trainyard/core/testing/flags_table.h"
#include "trainyard/core/threads/affinity.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::core;
  static const FlagTable kTable = small_table();
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  for (const FlagSpec& spec : kTable.all()) {
    try {
      const FlagValue value = parse_flag_value(spec, text);
      if (parse_flag_value(spec, format_flag_value(value)) != value) std::abort();
    } catch (const Error&) {
      // Refused.
    }
  }
  if (const auto cpus = parse_cpu_list(text); cpus && parse_cpu_list(format_cpu_list(*cpus)) != cpus) std::abort();
  try {
    const Affinity affinity = parse_affinity(text);
    static_cast<void>(affinity_places(affinity, {{.cpu = 0}, {.cpu = 1, .core = 1}, {.cpu = 2, .package = 1}}));
  } catch (const Error&) {
    // Refused.
  }
  return 0;
}
