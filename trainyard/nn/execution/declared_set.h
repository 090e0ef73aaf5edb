// The parameters and buffers of a graph without an executor.
#pragma once

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns a set that holds all parameters and buffers of the graph, allocated and not initialized.
inline ParameterSet declared_set(const Graph& graph) {
  ParameterSet set;
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& spec : node.parameters) set.declare(spec);
    for (const BufferSpec& spec : node.buffers) set.declare_buffer(spec);
  }
  set.allocate();
  return set;
}

}  // namespace trainyard::nn
