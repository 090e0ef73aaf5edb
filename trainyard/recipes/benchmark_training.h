// The training modes of door 1: assembles trainer, callbacks, monitors and checkpoints, and runs them.
#pragma once

#include <iosfwd>

#include "trainyard/recipes/benchmark.h"
#include "trainyard/recipes/benchmark_settings.h"

namespace trainyard::recipes {

BenchmarkOutcome run_training(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                              const core::StopToken& stop);

}  // namespace trainyard::recipes
