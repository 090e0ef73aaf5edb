// Training with 2:4 sparsity, as in PaddlePaddle's ASP: the initial weights are pruned once, and their masks are kept
// (optim/sparsity/prune.h).
#pragma once

#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Prunes the parameters of all replicas and returns the result. When some have a mask already, does nothing and returns
// an empty result: a resumed training keeps the masks of its checkpoint. Call it after loading, before train(). The
// trainer's tower is a graph. Throws what optim::sparse_layers() and optim::prune() throw, and kInvalidArgument for a
// model without any weight to prune.
std::vector<optim::LayerSparsity> prune_training(TowerTrainer& trainer, const optim::SparsityOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
