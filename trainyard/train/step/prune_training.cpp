#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

std::vector<optim::LayerSparsity> prune_training(TowerTrainer& trainer, const optim::SparsityOptions& options) {
  std::vector<optim::LayerSparsity> report;
  if (optim::has_masks(trainer.parameters())) return report;
  const std::vector<optim::SparseLayer> layers = optim::sparse_layers(trainer.options().graph, options.exclude);
  const auto pruned_weights = [](const optim::SparseLayer& layer) {
    return layer.treatment == optim::SparsityTreatment::kSparse;
  };
  if (std::none_of(layers.begin(), layers.end(), pruned_weights)) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the model has no weight that could be pruned",
         .where = trainer.options().graph.name,
         .expected = "a convolution or linear layer of four inputs or more that is not excluded",
         .actual = fmt::format("{} convolutions and linear layers, all of which stay dense", layers.size())});
  }
  trainer.change_parameters([&](nn::ParameterSet& parameters) {
    std::vector<optim::LayerSparsity> pruned = optim::prune(parameters, layers, options.algorithm);
    if (report.empty()) report = std::move(pruned);
  });
  return report;
}

}  // namespace trainyard::train
