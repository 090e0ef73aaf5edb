// Steps and learning rate of a run, from its options, its data and the model's defaults.
#pragma once

#include <iosfwd>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/schedules/run_schedule.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

// Returns how many steps the run has. Throws kInvalidArgument.
train::StepPlan make_step_plan(const PreparedRun& run);

// Returns how many steps an epoch of the training data has; not rounded.
double batches_per_epoch(const PreparedRun& run);

// Returns the learning rate that is asked for, else the model's. Steps are global steps. Throws kInvalidArgument for a
// schedule that is malformed.
RunSchedule make_schedule(const PreparedRun& run);

// Draws it into TfCnnOptions::plot_schedule, writes its numbers beside that file, and says on `out` what it is and
// where both are.
void write_schedule_plot(const PreparedRun& run, std::ostream& out);

}  // namespace trainyard::frontends
