// Which weights of a training are evaluated, kept and served: averaged ones, where it averages.
#pragma once

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

// Returns the averaged weights where `averaged` asks for them and the trainer averages, else those that train. Between
// steps, after TowerTrainer::wait().
[[nodiscard]] nn::ParameterSet& evaluated_weights(TowerTrainer& trainer, bool averaged = true);

// Returns whether the averaged weights have batch norm statistics of other weights: an equal average has those of the
// last weights, until they are measured again (recalibrate_batch_norms()).
[[nodiscard]] bool has_stale_statistics(const TowerTrainer& trainer);

}  // namespace trainyard::train
