// Selects the CPUs on which the threads of a team run, in the syntax of KMP_AFFINITY (Intel's and LLVM's OpenMP
// runtime; their reference: "Thread Affinity Interface" of the Intel compiler's manual, and kmp_affinity.cpp of LLVM
// for the order of places). gcc's runtime does not support it, so it is computed here and set with sched_setaffinity.
//
//   [modifier,]...type[,permute[,offset]]
//
// Types: compact (consecutive threads as close as possible), scatter (as far apart), explicit (those of proclist), none
// and disabled (anywhere). Modifiers: granularity=fine|thread|core|package|socket, proclist=[...], verbose, noverbose,
// respect, norespect, warnings, nowarnings. `permute` makes so many innermost levels (package, core, thread) the
// outermost ones of the order: compact,1 gives each core one thread before any gets a second one. `offset` is the place
// of the first thread. Not supported, and an error: balanced, logical, physical, and granularity by tiles, dies and
// groups.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/system/cpu_topology.h"

namespace trainyard::core {

struct Affinity {
  enum class Type { kNone, kCompact, kScatter, kExplicit };
  enum class Granularity { kThread, kCore, kPackage };

  Type type = Type::kNone;
  Granularity granularity = Granularity::kCore;
  int permute = 0, offset = 0;
  bool verbose = false;
  bool respect = true;            // only CPUs that the process may use
  std::vector<CpuList> places{};  // for kExplicit: proclist, in its order
};

// Parses a text in this syntax. Throws kInvalidArgument with what was expected.
Affinity parse_affinity(std::string_view text);

// Returns the CPUs for each thread of a team, in the threads' order. A team with more threads begins at the front
// again. Empty for kNone: threads run anywhere. Throws kInvalidArgument when proclist names a CPU that is not among the
// positions.
[[nodiscard]] std::vector<CpuList> affinity_places(const Affinity& affinity, const std::vector<CpuPosition>& positions);

}  // namespace trainyard::core
