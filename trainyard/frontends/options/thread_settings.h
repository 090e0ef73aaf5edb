// The number and placement of a run's threads: the requested options, and the resulting settings on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/threads/affinity.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/options/thread_options.h"

namespace trainyard::frontends {

struct ThreadSettings {
  int replicas = 1;
  int intra_op_threads = 1;  // all replicas together
  int input_threads = 1;
  bool use_numa_affinity = false;
  std::optional<core::Affinity> affinity{};      // unset: no placement was requested
  bool print = false;                            // the settings at the start
  std::vector<core::ThreadPlacement> replica{};  // of each replica
  core::ThreadPlacement main{};  // placement of the thread that evaluates and runs forward passes, with its team

  // Returns lines for the log: counts, spinning, places, nodes.
  std::vector<std::string> lines() const;
};

// Returns the GOMP_SPINCOUNT of spin_milliseconds: 100,000 turns per millisecond, the estimate of gcc's runtime for its
// own defaults. libgomp reads it only when it is loaded.
[[nodiscard]] std::optional<std::string> wanted_spin_count(const ThreadOptions& options);

// Places the threads on this machine. `replicas` share the threads evenly. With use_numa_affinity replica r is on node
// r modulo the number of nodes, and intra_op_threads is reduced to the CPUs of the used nodes; on a machine with one
// node this is logged. Throws kInvalidArgument for a placement in addition to OMP_PLACES, OMP_PROC_BIND or
// GOMP_CPU_AFFINITY.
ThreadSettings place_threads(const ThreadOptions& options, int replicas, int input_threads,
                             const core::ReadText& read = core::read_system_file);

}  // namespace trainyard::frontends
