// Selects a graph's inputs from a batch: the tensors with its inputs' names.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "trainyard/core/base/tensors.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

// Returns the names of a graph's inputs, in the order of its nodes.
[[nodiscard]] inline std::vector<std::string> input_names(const nn::Graph& graph) {
  std::vector<std::string> names;
  for (const int id : graph.inputs()) {
    names.push_back(std::get<nn::Input>(graph.nodes[static_cast<size_t>(id)].op).name);
  }
  return names;
}

// Returns the batch's tensors with these names. Throws kNotFound, which lists the batch's names, when it lacks one.
[[nodiscard]] inline core::NamedTensors taken_from(const core::NamedTensors& batch,
                                                   const std::vector<std::string>& names) {
  core::NamedTensors taken;
  for (const std::string& name : names) taken.set(name, batch[name]);
  return taken;
}

// Does the same for inference. A graph with a single input gets the batch's "images" whatever the input's name is:
// graphs of other programs have other names.
[[nodiscard]] inline core::NamedTensors inference_inputs(const core::NamedTensors& batch,
                                                         const std::vector<std::string>& names) {
  if (names.size() == 1 && !batch.has(names.front()) && batch.has("images")) return {{names.front(), batch["images"]}};
  return taken_from(batch, names);
}

}  // namespace trainyard::train
