// The flags of threads and their placement: what they ask for, and what that is on this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/threads/affinity.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::recipes {

struct ThreadSettings {
  int replicas = 1;
  int intra_op_threads = 1;  // all replicas together
  int input_threads = 1;
  bool use_numa_affinity = false;
  std::optional<core::Affinity> affinity;      // none: nobody asked for places
  bool print = false;                          // the settings at the start
  std::vector<core::ThreadPlacement> replica;  // of each replica
  core::ThreadPlacement main;                  // of the thread that evaluates and runs forward passes, with its team

  // Lines for the log: counts, spinning, places, nodes.
  std::vector<std::string> lines() const;
};

// GOMP_SPINCOUNT for --kmp_blocktime, when that is given or --mkl makes its default count: 100,000 turns a millisecond,
// the estimate that gcc's runtime makes for its own defaults. libgomp reads it when it is loaded and never again.
// Throws kInvalidArgument for less than 0 or more than 2^31 - 1 milliseconds.
std::optional<std::string> wanted_spin_count(const core::FlagValues& values);

// A kmp_ flag counts when it is given, and with --mkl also its default. `replicas` share `intra_op_threads` evenly.
// With use_numa_affinity replica r is on node r modulo their number, and intra_op_threads shrinks to the CPUs of the
// nodes that are used; a machine with one node gets a line of the log that says so. Throws kInvalidArgument for a
// --kmp_affinity that is not understood, and for placements beside those of OMP_PLACES, OMP_PROC_BIND or
// GOMP_CPU_AFFINITY.
ThreadSettings read_thread_settings(const core::FlagValues& values, int replicas, int intra_op_threads,
                                    int input_threads, const core::ReadText& read = core::read_system_file);

}  // namespace trainyard::recipes
