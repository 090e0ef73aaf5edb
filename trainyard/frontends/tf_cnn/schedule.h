// Computes steps and learning rate of a run from its options, its data and the model's defaults.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/schedules/run_schedule.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

// Returns the steps of the run. Throws kInvalidArgument.
train::StepPlan make_step_plan(const PreparedRun& run);

// Returns the steps of the whole training, those of tf_cnn_benchmarks' warm-up included; at least 1.
int64_t updates_of(const PreparedRun& run);

// Returns the number of steps in an epoch of the training data, not rounded.
double batches_per_epoch(const PreparedRun& run);

// Returns the requested learning rate, or else the model's. Steps are global steps. Throws kInvalidArgument for a
// schedule that is malformed.
RunSchedule make_schedule(const PreparedRun& run);

// Draws the schedule into TfCnnOptions::plot_schedule, writes its numbers to a file next to it, and describes it and
// both files on `out`.
void write_schedule_plot(const PreparedRun& run, std::ostream& out);

}  // namespace trainyard::frontends
