// Writes run_summary.json: a run's record and its results (docs/formats/metrics.md), and the same in a few lines for
// the console. It is written when the run begins, too, so that a killed run leaves its record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/parallel/variable_update/gradient_compression.h"
#include "trainyard/train/callbacks/run_record.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/profile/machine_limit_share.h"

namespace trainyard::train {

struct RunSummary {
  RunRecord record;
  RunStatus status = RunStatus::kFinished;
  std::string error;    // message of a failed run
  double ended_at = 0;  // seconds since the Unix epoch; 0: it has not ended

  std::string model;
  std::string dataset;
  std::string mode;
  int64_t global_step = 0;  // at the end
  int64_t steps = 0;        // steps of this run, after the warm-up
  double seconds = 0;       // seconds of these steps
  double images_per_second = 0;
  ComputeRate compute;
  StepTimes shares;                                       // TimeShares::shares() of the run
  std::vector<StepTimes> rank_seconds;                    // seconds of each process; empty: only this process
  std::optional<parallel::GradientBytes> gradient_bytes;  // of a replica in this run; unset: they are not compressed
  int64_t bad_samples = 0;                                // training samples that were skipped or substituted
  int64_t skipped_steps = 0;                              // steps whose loss or gradient was not finite (--on_nan=skip)
  int64_t peak_memory_bytes = 0;                          // most resident memory of this process; 0: not known
  std::string stopped_by;                                 // "" when the run was complete
  std::vector<std::pair<std::string, double>> metrics;    // final ones: {"loss", 0.1}, {"eval_top_1_accuracy", 0.97}

  std::optional<BestCheckpoint> best;  // best by validation, of all runs in the directory
  // Empty when there is none.
  std::string checkpoint;
  std::string tensorboard_directory;
  std::string metrics_json;
  std::string metrics_csv;
  std::string curve;
};

// Replaces the file atomically. Adds the library's version, machine and date. Throws kIo, kNoSpace.
void write_run_summary(const RunSummary& summary, const std::string& path,
                       core::FileSystem& files = core::local_file_system());

// Returns the rank that the others waited for: the one that itself waited for the least part of its time. Returns -1
// for one rank, where none has waited, and on accelerators, whose communication cannot be separated.
int slowest_rank(const std::vector<StepTimes>& rank_seconds);
// Returns "waiting for others 9 % and moving numbers 3 % of the time of 4 ranks, slowest rank 2 (it waited 1 %, the
// others 12 %)"; empty for one rank.
std::string rank_times_text(const std::vector<StepTimes>& rank_seconds);
// Returns a warning that names the slowest rank, where the others wait for it for more than a tenth of their time and
// it does not wait as long for them. `steps`: how many steps the times are of.
std::optional<std::string> slow_rank_warning(const std::vector<StepTimes>& rank_seconds, int64_t steps);

// Returns "input 5 %, compute 75 %, communication 10 % (waiting 4 %), update 10 %".
std::string time_shares_text(const StepTimes& shares);

// Returns "210.0 MB of gradients, 93.5 times less than the 19635.0 MB without compression".
std::string gradient_bytes_text(const parallel::GradientBytes& bytes);

// Returns one fact per line, without the last line break; the last lines name the files. `path` is that of the summary.
std::string run_summary_text(const RunSummary& summary, const std::string& path);

}  // namespace trainyard::train
