// The modes of a run, each from what was prepared to its end.
#pragma once

#include <iosfwd>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/output/run_statistics.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Trains, with evaluations meanwhile where the mode has some: assembles trainer, callbacks, monitors and checkpoints.
// Changes run.train_dir() where that holds a run and options.saving.existing_run asks for another one.
RunStatistics run_training(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Evaluates checkpoints: once, or every eval_interval_secs until stopped.
RunStatistics run_evaluation(const PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Runs forward passes for their speed. With train_dir it goes on from the newest checkpoint there: with its weights,
// and with its count of steps, which forward passes raise too, as those of tf_cnn_benchmarks do. The checkpoint at its
// end holds everything else of the loaded one as it was, so that a training can go on from it.
RunStatistics run_forward_only(const PreparedRun& run, std::ostream& out, const core::StopToken& stop);

}  // namespace trainyard::frontends
