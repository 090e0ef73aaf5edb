// Selects the weights of a training that are evaluated, kept and served: the averaged ones if it averages weights.
#pragma once

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

// Returns the averaged weights if `averaged` is true and the trainer averages, and otherwise the trained ones. Call it
// between steps, after TowerTrainer::wait().
[[nodiscard]] nn::ParameterSet& evaluated_weights(TowerTrainer& trainer, bool averaged = true);

// Returns whether the averaged weights have batch norm statistics of other weights: an equal average has those of the
// last weights, until they are measured again (recalibrate_batch_norms()).
[[nodiscard]] bool has_stale_statistics(const TowerTrainer& trainer);

}  // namespace trainyard::train
