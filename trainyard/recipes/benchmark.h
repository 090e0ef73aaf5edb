// Door 1: a tf_cnn_benchmarks command line, run here. Trains, evaluates, or both, or runs forward only; prints
// upstream's lines (step_log.h) and leaves checkpoints, metrics and a summary in train_dir.
//
//   const auto dialect = recipes::Dialect::kTrainyard;
//   core::FlagValues values = core::parse_flags(recipes::benchmark_flags(dialect), {"--model=resnet20", ...});
//   recipes::run_benchmark(values, dialect, std::cout, stop.token());
#pragma once

#include <iosfwd>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/recipes/dialect.h"

namespace trainyard::recipes {

enum class BenchmarkOutcome { kFinished, kStoppedBySignal };

// Throws core::Error: kInvalidArgument for flags that contradict each other (upstream's texts), kUnsupported for what
// this build does not have, and whatever data, files and training throw. When training throws, the checkpoints that
// were complete before stay.
BenchmarkOutcome run_benchmark(const core::FlagValues& values, Dialect dialect, std::ostream& out,
                               const core::StopToken& stop);

}  // namespace trainyard::recipes
