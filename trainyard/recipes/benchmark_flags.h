// The parameter table of the benchmark door: the 138 flags of tf_cnn_benchmarks and ours, from all rooms.
#pragma once

#include "trainyard/core/flags.h"

namespace trainyard::recipes {

// Made at the first call; lives as long as the program. Thread-safe.
const core::FlagTable& benchmark_flags();

}  // namespace trainyard::recipes
