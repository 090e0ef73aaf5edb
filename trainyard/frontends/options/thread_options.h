// The number and placement of a run's threads: the requested options, and their flags.
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/threads/affinity.h"

namespace trainyard::frontends {

struct ThreadOptions {
  int intra_op_threads = 0;  // all replicas together; 0: all cores
  bool use_numa_affinity = false;
  std::optional<core::Affinity> affinity{};    // unset: no placement was requested
  bool print = false;                          // log the settings at the start
  std::optional<int64_t> spin_milliseconds{};  // time that idle threads of a team spin; unset: from the environment
};

// Declares them, and --max_cpu_isa, which DeviceOptions has.
void declare_thread_flags(core::FlagTable& table);
// Reads them. A kmp_ flag is used when it is given, and with --mkl also its default. Throws kInvalidArgument for an
// invalid --kmp_affinity.
[[nodiscard]] ThreadOptions read_thread_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
