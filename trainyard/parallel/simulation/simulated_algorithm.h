// The names of ways to exchange gradients that a prediction takes.
#pragma once

#include <string>

#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {

// The name of an exchange through servers, which is no all-reduce.
constexpr const char* kParameterServerName = "parameter_server";

// Returns the choice of algorithms by name: "chain", "chain/64K" and "chain/1M", what runs without an all_reduce_spec
// (all_reduce_candidates.h); "hierarchical_copy"; or an all_reduce_spec of CPUs, such as "ring" or "pscpu:32k:xring#2".
// "#n" at the end of a name stands for as many shards as there are workers, up to kMostShards. Throws kInvalidArgument
// for anything else, and kUnsupported for a spec of GPUs.
AlgorithmChoice simulated_choice(const std::string& name, int workers);

}  // namespace trainyard::parallel
