// What `trainyard train` and `trainyard eval` require of their flags, and set where these say nothing
// (trainer_defaults.h).
#pragma once

#include <cstdint>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends {

// Seconds between two checkpoints.
inline constexpr int64_t kSecondsToCheckpoint = 600;
// The folder of runs without a train_dir.
inline constexpr const char* kRunsFolder = "runs";

// Throws kInvalidArgument where no model is named, and for a training without images that does not ask for synthetic
// ones. Where train_dir holds a run, or weights are named, the model may be theirs.
void require_what_a_trainer_needs(const core::FlagValues& values);

// Throws kInvalidArgument for an evaluation that does not say what it evaluates, with the runs that are in kRunsFolder.
// Call it in front of validate_flags(), which says less.
void require_what_is_evaluated(const core::FlagValues& values);

// Sets what the flags leave open.
void set_trainer_defaults(const core::FlagValues& values, TfCnnOptions& options);

}  // namespace trainyard::frontends
