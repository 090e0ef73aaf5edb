// Writes and reads graphs as JSON, for files that contain their network, so that the reading program does not need the
// model (docs/formats/graph.md).
//
//   const std::string text = nn::graph_json(graph);
//   const nn::Graph same = nn::parse_graph_json(text, "model.safetensors");
//
// The text holds operations, attributes, initializers and outputs. Shapes, parameters and buffers are not in it:
// reading infers them, with all the checks of a GraphBuilder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// The limits of a text. The largest registered model has a tenth of each.
struct GraphJsonLimits {
  static constexpr size_t kBytes = size_t{4} << 20;
  static constexpr size_t kNodes = 16384;
  static constexpr size_t kInputsOfNode = 4096;
  static constexpr int64_t kNumber = int64_t{1} << 24;    // of an attribute and of an extent, either sign
  static constexpr int64_t kElements = int64_t{1} << 31;  // of a value (of one sample), a parameter or a buffer
};

// Returns the text, on one line. Throws kUnsupported, which names the node, for a graph with a custom layer, and
// kInvalidArgument for one that parse_graph_json() would not read: names that are not UTF-8, more than the limits.
[[nodiscard]] std::string graph_json(const Graph& graph);

// Returns the graph, equal in every part to the one that was written. `where` names the text in errors. Throws
// kUnsupported for a version that this build does not know, and kCorruptData, which names the node, for anything else
// that graph_json() does not write. Allocates memory in proportion to the text.
[[nodiscard]] Graph parse_graph_json(std::string_view text, std::string_view where);

}  // namespace trainyard::nn
