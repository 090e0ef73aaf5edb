// The modes of door 1 that do not train: evaluation of checkpoints, and forward passes for their speed.
#pragma once

#include <iosfwd>

#include "trainyard/recipes/benchmark.h"
#include "trainyard/recipes/benchmark_settings.h"

namespace trainyard::recipes {

// Once, or every eval_interval_secs until stopped.
BenchmarkOutcome run_evaluation(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                                const core::StopToken& stop);

// With train_dir it goes on from the newest checkpoint there: with its weights, and with its count of steps, which
// forward passes raise too (spec 3.2; upstream's testForwardOnly). The checkpoint at its end holds everything else of
// the loaded one as it was, so that a training can go on from it.
BenchmarkOutcome run_forward_only(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                                  const core::StopToken& stop);

}  // namespace trainyard::recipes
