// What a graph takes of a batch: the tensors of its inputs' names, whatever these are.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "trainyard/core/base/named_tensors.h"
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

// Returns those tensors of the batch. Throws kNotFound, which says what there is, where it lacks one.
[[nodiscard]] inline core::NamedTensors taken_from(const core::NamedTensors& batch,
                                                   const std::vector<std::string>& names) {
  core::NamedTensors taken;
  for (const std::string& name : names) taken.set(name, batch[name]);
  return taken;
}

// Does the same for a graph that only infers, whose only input may also be called otherwise than the "images" that the
// batch has: graphs of other programs name it as they like.
[[nodiscard]] inline core::NamedTensors inference_inputs(const core::NamedTensors& batch,
                                                         const std::vector<std::string>& names) {
  if (names.size() == 1 && !batch.has(names.front()) && batch.has("images")) return {{names.front(), batch["images"]}};
  return taken_from(batch, names);
}

}  // namespace trainyard::train
