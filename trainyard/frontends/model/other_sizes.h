// Builds the networks of a run with progressive resizing.
#pragma once

#include <functional>
#include <vector>

#include "trainyard/data/pipeline/epoch_sizes.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::frontends {

// Returns the graphs that `build` makes for the sizes other than that of `graph`, each once. Throws kInvalidArgument,
// naming --progressive_sizes, when their weights differ from those of `graph`.
std::vector<nn::Graph> graphs_of_other_sizes(const nn::Graph& graph, const std::vector<data::EpochSize>& sizes,
                                             const std::function<nn::Graph(nn::Size2d)>& build);

}  // namespace trainyard::frontends
