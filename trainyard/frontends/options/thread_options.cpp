#include "trainyard/frontends/options/thread_flags.h"

namespace trainyard::frontends {

ThreadOptions read_thread_options(const core::FlagValues& values) {
  const auto counts = [&](const char* flag) { return values.given(flag) || values.boolean("mkl"); };
  ThreadOptions options;
  options.intra_op_threads = static_cast<int>(values.optional_integer("num_intra_threads").value_or(0));
  options.use_numa_affinity = values.boolean("use_numa_affinity");
  if (counts("kmp_affinity")) options.affinity = core::parse_affinity(values.text("kmp_affinity"));
  options.print = counts("kmp_settings") && values.integer("kmp_settings") != 0;
  if (counts("kmp_blocktime")) options.spin_milliseconds = values.integer("kmp_blocktime");
  return options;
}

}  // namespace trainyard::frontends
