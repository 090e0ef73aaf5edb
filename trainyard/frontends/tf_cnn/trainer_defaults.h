// The requirements and defaults of `trainyard train` that a trainer needs. Runs without a sub-command have none of
// them, because they behave as tf_cnn_benchmarks, a benchmark.
//
// - A model and images are asked for; synthetic images where --synthetic asks for them.
// - Each epoch ends with an evaluation, where there are validation images, and with a checkpoint.
// - Every ten minutes there is a checkpoint, too.
// - A run without --train_dir gets a folder of its own, runs/MODEL-N. An empty --train_dir= saves nothing.
//
// trainer_flags.h has those that follow from flags alone; these depend on the data.
#pragma once

#include <cstdint>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Returns whether the training has a whole epoch with this batch size: only then it is evaluated by default.
[[nodiscard]] bool has_whole_epoch(const PreparedRun& run);

// Decides, once the training data are open, whether the run evaluates each epoch, opens the validation images for it,
// and logs why it does not. Throws kInvalidArgument when they do not fit the training's, or when
// --stop_at_top_1_accuracy is given without evaluations.
void settle_evaluations(PreparedRun& run);

// Returns whether `step` (from 1) of a training completes an epoch.
[[nodiscard]] bool completes_epoch(int64_t step, int64_t examples_per_step, int64_t train_examples);

}  // namespace trainyard::frontends
