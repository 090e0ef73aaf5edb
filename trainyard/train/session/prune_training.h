// Training with 2:4 sparsity, as PaddlePaddle's ASP does: what a trainer starts from is pruned once, and its masks hold
// from then on (optim/sparsity/prune.h).
#pragma once

#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Prunes the parameters of all replicas and returns what was done, where none of them has a mask; else does nothing and
// returns nothing: a training that was resumed goes on with the masks of its checkpoint. Call it after loading, before
// train(). The trainer's tower is a graph. Throws what optim::sparse_layers() and optim::prune() throw, and
// kInvalidArgument for a model without any weight to prune.
std::vector<optim::LayerSparsity> prune_training(TowerTrainer& trainer, const optim::SparsityOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
