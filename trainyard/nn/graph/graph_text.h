// Writes a graph as text: one block per node, in the form of protobuf's text format.
//
//   node {
//     name: "conv1"
//     op: "convolution"
//     input: "input"
//     attributes: "64 x 7x7 / 2, pad 3"
//     shape: [64, 112, 112]
//     parameter { name: "conv1.weight" shape: [64, 3, 7, 7] }
//   }
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the text: the graph's name, all nodes in the order in which they run, with their inputs, shapes without the
// batch, parameters and buffers, and then the outputs. It ends with a line break.
[[nodiscard]] std::string graph_text(const Graph& graph);

}  // namespace trainyard::nn
