// A graph as a table for people: what `trainyard models NAME` prints.
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// One line a node: name, kind, attributes, output shape, parameters, forward flops of one sample; a line of totals.
std::string layer_table(const Graph& graph);

}  // namespace trainyard::nn
