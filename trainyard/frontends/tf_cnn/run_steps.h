// The steps of one run of a training, in the counts of its dialect (docs/dialects.md).
#pragma once

#include <cstdint>
#include <iosfwd>

#include "trainyard/frontends/tf_cnn/output/displayed_steps.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// tf_cnn_benchmarks: num_batches are the steps after a warm-up, which trains, too; lines, saves and evaluations count
// from its end, separately in each run. trainyard train: num_batches are all updates of the training, over all its
// runs, of which the first ones of each run may be untimed; everything counts updates.
struct RunSteps {
  int64_t first = 0;              // updates that earlier runs have done
  int64_t warmup = 0, timed = 0;  // steps of this run, in this order
  bool over_all_runs = false;     // everything counts updates
  int64_t per_step = 1;           // updates per step: the number of workers where the global step counts those of each

  int64_t end() const { return first + per_step * (warmup + timed); }  // updates at its end
  bool none() const { return timed == 0; }
};

// Returns the steps of a run from `first_step`, up to TfCnnOptions::stop_after_epochs. Logs when none are left.
RunSteps make_run_steps(const PreparedRun& run, int64_t first_step);

// Prints tf_cnn_benchmarks' message that the warm-up is longer than requested.
void print_rounded_warmup(const PreparedRun& run, std::ostream& out);

// Returns which steps `trainyard train` shows: each multiple of --display_every, and the last.
DisplayedSteps displayed_steps(const PreparedRun& run);

}  // namespace trainyard::frontends
