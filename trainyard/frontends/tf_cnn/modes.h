// The modes of a prepared run.
#pragma once

#include <iosfwd>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Trains, with evaluations if the mode has some: assembles trainer, callbacks, monitors and checkpoints. Changes
// run.train_dir() when it contains a run and options.saving.existing_run requests another folder.
RunStatistics run_training(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Evaluates checkpoints: once, or every eval_interval_secs until stopped.
RunStatistics run_evaluation(const PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Runs forward passes to measure their speed. With train_dir it continues from the newest checkpoint there: with its
// weights, and with its count of steps, which forward passes increase, too, as in tf_cnn_benchmarks. The checkpoint at
// its end keeps everything else of the loaded one, so that a training can continue from it.
RunStatistics run_forward_only(const PreparedRun& run, std::ostream& out, const core::StopToken& stop);

}  // namespace trainyard::frontends
