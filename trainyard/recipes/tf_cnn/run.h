// Runs a tf_cnn_benchmarks command line: trains, evaluates, or both, or runs forward only; prints the lines of
// tf_cnn_benchmarks (step_log.h) and leaves checkpoints, metrics and a summary in train_dir.
//
//   const core::FlagValues values = core::parse_flags(tf_cnn_flags(dialect), {"--model=resnet20", ...});
//   run_tf_cnn(read_options(values, dialect), std::cout, stop.token());
//
// Or without flags, with options that were filled by hand (options.h).
#pragma once

#include <iosfwd>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/recipes/tf_cnn/options.h"
#include "trainyard/recipes/tf_cnn/output/run_statistics.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Logs the options' warnings, runs, and returns the run's statistics; with several processes each returns the same
// counts, and the chief's lines are the only ones. Throws core::Error: kInvalidArgument for options that do not fit
// each other, the data or the machine, kUnsupported for what this build does not have, and whatever data, files and
// training throw. When training throws, the checkpoints that were complete before stay.
RunStatistics run_tf_cnn(const TfCnnOptions& options, std::ostream& out, const core::StopToken& stop);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
