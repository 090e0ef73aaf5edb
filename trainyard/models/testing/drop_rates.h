// The rates of the layers that leave out values in training, for tests.
#pragma once

#include <variant>
#include <vector>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::models {

// Returns the rates of all layers of a kind, nn::Dropout or nn::StochasticDepth, in their order.
template <typename Layer>
std::vector<double> drop_rates(const nn::Graph& graph) {
  std::vector<double> rates;
  for (const nn::Node& node : graph.nodes) {
    if (const auto* const layer = std::get_if<Layer>(&node.op)) rates.push_back(layer->drop);
  }
  return rates;
}

}  // namespace trainyard::models
