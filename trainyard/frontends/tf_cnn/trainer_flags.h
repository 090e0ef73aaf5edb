// The flags that `trainyard train` and `trainyard eval` require, and their defaults (trainer_defaults.h).
#pragma once

#include <cstdint>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends {

// Seconds between two checkpoints.
inline constexpr int64_t kSecondsToCheckpoint = 600;
// The folder of runs without a train_dir.
inline constexpr const char* kRunsFolder = "runs";

// Throws kInvalidArgument when no model is given, and for a training without images that does not request synthetic
// ones. When train_dir contains a run, or weights are given, the model may come from them.
void require_what_a_trainer_needs(const core::FlagValues& values);

// Throws kInvalidArgument for an evaluation that does not say what it evaluates, with the runs that are in kRunsFolder,
// or on which images. Call it before validate_flags(), whose messages are less specific.
void require_what_is_evaluated(const core::FlagValues& values);

// Sets the defaults of flags that are not given.
void set_trainer_defaults(const core::FlagValues& values, TfCnnOptions& options);

}  // namespace trainyard::frontends
