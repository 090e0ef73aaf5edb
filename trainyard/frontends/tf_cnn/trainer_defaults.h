// What `trainyard train` requires and decides where no flag says so, because it is a trainer's. Flags without a command
// have none of this: they are tf_cnn_benchmarks, a benchmark.
//
// - A model and images are asked for; synthetic images where --synthetic asks for them.
// - Each epoch ends with an evaluation, where there are validation images, and with a checkpoint.
// - Every ten minutes there is a checkpoint, too.
// - A run without --train_dir gets a folder of its own, runs/MODEL-N. An empty --train_dir= saves nothing.
//
// What follows from flags alone is in trainer_flags.h; this is what depends on the data.
#pragma once

#include <cstdint>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Returns whether the training of this batch size has a whole epoch: only then it is evaluated by itself.
[[nodiscard]] bool has_whole_epoch(const PreparedRun& run);

// Decides, once the training data are open, whether the run evaluates each epoch, opens the validation images for it,
// and says why it does not. Throws kInvalidArgument where they do not fit the training's, or where
// --stop_at_top_1_accuracy waits for evaluations that will not be.
void settle_evaluations(PreparedRun& run);

// Says whether `step` (from 1) of a training completes an epoch.
[[nodiscard]] bool completes_epoch(int64_t step, int64_t examples_per_step, int64_t train_examples);

}  // namespace trainyard::frontends
