// Reports of 2:4 sparsity for commands (optim/sparsity/prune.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/optim/sparsity/prune.h"

namespace trainyard::frontends {

// Logs what a training has pruned, or, when `pruned` is empty, that it continues with the existing masks.
void log_pruning(const std::vector<optim::LayerSparsity>& pruned, optim::MaskAlgorithm algorithm);

// Counts over the weights to prune.
struct SparsityCounts {
  int64_t weights = 0;      // weights to prune
  int64_t two_of_four = 0;  // of these weights
  int64_t elements = 0, others_than_zero = 0;

  bool all() const { return two_of_four == weights; }
  double density() const;
};
SparsityCounts count_sparsity(const std::vector<optim::LayerSparsity>& layers);

// Returns a table with one line per layer, and a line of the counts.
std::string sparsity_table(const std::vector<optim::LayerSparsity>& layers);
// Returns the same as JSON: an object with "model", "dataset", "path", "mask_algo", "weights" (a list with an object a
// layer: "name", "shape", "treatment", "density", "two_of_four", "masked", "kept") and the counts.
std::string sparsity_json(const std::vector<optim::LayerSparsity>& layers, const TrainedModel& trained,
                          optim::MaskAlgorithm algorithm);

}  // namespace trainyard::frontends
