// A graph for people's eyes: each node with its name, what it does and its shape, and an arrow from each input.
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the drawing in Graphviz' language, for `dot -Tpdf`.
[[nodiscard]] std::string graph_dot(const Graph& graph);

// Returns a picture, without Graphviz. Nodes stand below each other in the order in which they run. Arrows that pass
// nodes by run beside them, each in the nearest lane that is free.
[[nodiscard]] std::string graph_svg(const Graph& graph);

}  // namespace trainyard::nn
