// Writes a graph as a table, for `trainyard models NAME`.
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns one line for each node, with name, kind, attributes, output shape, parameters and forward flops of one
// sample, and a line of totals; with several outputs, a line that names them.
std::string layer_table(const Graph& graph);

}  // namespace trainyard::nn
