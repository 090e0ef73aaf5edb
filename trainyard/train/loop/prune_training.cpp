#include "trainyard/train/loop/prune_training.h"

#include <utility>

namespace trainyard::train {

std::vector<optim::LayerSparsity> prune_training(SingleCostTrainer& trainer, const optim::SparsityOptions& options) {
  std::vector<optim::LayerSparsity> report;
  if (optim::has_masks(trainer.parameters())) return report;
  const std::vector<optim::SparseLayer> layers = optim::sparse_layers(trainer.options().graph, options.exclude);
  trainer.change_parameters([&](nn::ParameterSet& parameters) {
    std::vector<optim::LayerSparsity> pruned = optim::prune(parameters, layers, options.algorithm);
    if (report.empty()) report = std::move(pruned);
  });
  return report;
}

}  // namespace trainyard::train
