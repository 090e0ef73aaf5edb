// The flags that say how many steps a run has.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::recipes {

// All but the batch sizes and the examples, which the caller fills in. Throws kInvalidArgument when a list holds
// something else than numbers.
train::StepPlanOptions read_step_plan_options(const core::FlagValues& values);

// Any eval_during_training_* flag is set.
bool evaluates_during_training(const core::FlagValues& values);

}  // namespace trainyard::recipes
