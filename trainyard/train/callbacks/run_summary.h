// run_summary.json: what a run is and what came of it (docs/formats/metrics.md), and the same in a few lines for the
// console. It is written when the run begins, too, so that one that is killed leaves what it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/train/callbacks/run_record.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// How much of the machine a run uses. The FLOP/s are those of the model by definition: forward_flops() of an image, and
// twice that again for its backward, times images a second.
struct ComputeRate {
  double model_flops = 0;
  double limit_flops = 0;     // that the machine can do (core::MachineLimits); 0: not measured
  bool limit_is_low = false;  // measured while other programs ran
};
// Returns "120.5 GFLOP/s of the model, 48 % of the machine's limit"; empty for a model without flops.
std::string compute_rate_text(const ComputeRate& rate);

struct RunSummary {
  RunRecord record;
  RunStatus status = RunStatus::kFinished;
  std::string error;    // of one that failed
  double ended_at = 0;  // seconds since the Unix epoch; 0: it has not

  std::string model;
  std::string dataset;
  std::string mode;
  int64_t global_step = 0;  // at the end
  int64_t steps = 0;        // of this run, after the warm-up
  double seconds = 0;       // that these took
  double images_per_second = 0;
  ComputeRate compute;
  StepTimes shares;                                     // TimeShares::shares() of the run
  std::vector<StepTimes> rank_seconds;                  // of each process that trained; empty: this one alone
  int64_t bad_samples = 0;                              // of the training data, that were skipped or substituted
  int64_t skipped_steps = 0;                            // whose loss or gradient was not finite (--on_nan=skip)
  std::string stopped_by;                               // "" when the run came to its end
  std::vector<std::pair<std::string, double>> metrics;  // final ones: {"loss", 0.1}, {"eval_top_1_accuracy", 0.97}

  std::optional<BestCheckpoint> best;  // by validation, of all runs in the directory
  // Empty when there is none.
  std::string checkpoint;
  std::string tensorboard_directory;
  std::string metrics_json;
  std::string metrics_csv;
  std::string curve;
};

// Replaces the file, whole or not at all. Adds the library's version, machine and date. Throws kIo, kNoSpace.
void write_run_summary(const RunSummary& summary, const std::string& path,
                       core::FileSystem& files = core::local_file_system());

// Returns which rank the others waited for: the one whose own work, all but communication, took longest. -1: not known,
// of one rank or on accelerators, whose communication is within their work.
int slowest_rank(const std::vector<StepTimes>& rank_seconds);
// Returns "communication 12 % of the time of 4 ranks (9 % to 14 %), slowest rank 2 (its own work took 8 % more than the
// mean)"; empty for one rank.
std::string rank_times_text(const std::vector<StepTimes>& rank_seconds);

// Returns "input 5 %, compute 85 %, communication 0 %, update 10 %".
std::string time_shares_text(const StepTimes& shares);

// Returns one fact a line, without the last line break; the end says where things are. `path` is the summary's own.
std::string run_summary_text(const RunSummary& summary, const std::string& path);

}  // namespace trainyard::train
