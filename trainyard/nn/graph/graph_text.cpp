#include "trainyard/nn/graph/graph_text.h"

#include <iterator>

#include <fmt/format.h>

namespace trainyard::nn {
namespace {

std::string quoted_name(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

std::string graph_text(const Graph& graph) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "name: {}\n", quoted_name(graph.name));
  for (const Node& node : graph.nodes) {
    fmt::format_to(out, "node {{\n  name: {}\n  op: {}\n", quoted_name(node.name), quoted_name(node.kind()));
    for (const int input : node.inputs) {
      fmt::format_to(out, "  input: {}\n", quoted_name(graph.nodes[static_cast<size_t>(input)].name));
    }
    if (const std::string attributes = node.description(); !attributes.empty()) {
      fmt::format_to(out, "  attributes: {}\n", quoted_name(attributes));
    }
    fmt::format_to(out, "  shape: {}\n", to_string(node.shape));
    for (const ParameterSpec& parameter : node.parameters) {
      fmt::format_to(out, "  parameter {{ name: {} shape: {} }}\n", quoted_name(parameter.name),
                     to_string(parameter.shape));
    }
    for (const BufferSpec& buffer : node.buffers) {
      fmt::format_to(out, "  buffer {{ name: {} shape: {} }}\n", quoted_name(buffer.name), to_string(buffer.shape));
    }
    text += "}\n";
  }
  for (const GraphOutput& output : graph.outputs) {
    fmt::format_to(out, "output {{ name: {} node: {} }}\n", quoted_name(output.name),
                   quoted_name(graph.nodes[static_cast<size_t>(output.node)].name));
  }
  return text;
}

}  // namespace trainyard::nn
