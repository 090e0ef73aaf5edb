// Draws a graph: each node with its name, operation and shape, and an arrow from each input.
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the drawing in Graphviz' language, for `dot -Tpdf`.
[[nodiscard]] std::string graph_dot(const Graph& graph);

// Returns an SVG image, without Graphviz. Nodes are below each other in the order in which they run. Arrows that skip
// nodes run next to them, each in the nearest free lane.
[[nodiscard]] std::string graph_svg(const Graph& graph);

}  // namespace trainyard::nn
