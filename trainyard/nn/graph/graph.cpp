#include "trainyard/nn/graph/graph.h"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/registry.h"

namespace trainyard::nn {
namespace {

int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const Node& Graph::node(std::string_view node_name) const {
  std::vector<std::string> names;
  for (const Node& candidate : nodes) {
    if (candidate.name == node_name) return candidate;
    names.push_back(candidate.name);
  }
  throw core::unknown_name("node of " + name, node_name, names);
}

bool Graph::is_output(int node_id) const {
  return std::any_of(outputs.begin(), outputs.end(), [&](const GraphOutput& each) { return each.node == node_id; });
}

std::vector<int> Graph::inputs() const {
  std::vector<int> ids;
  for (const Node& each : nodes) {
    if (std::holds_alternative<Input>(each.op)) ids.push_back(each.id);
  }
  return ids;
}

Graph main_output_graph(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size(), false);
  needed[static_cast<size_t>(graph.output())] = true;
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!needed[id]) continue;
    for (int input : graph.nodes[id].inputs) needed[static_cast<size_t>(input)] = true;
  }
  Graph main{.name = graph.name, .outputs = {graph.outputs.front()}};
  std::vector<int> new_ids(graph.nodes.size(), -1);
  for (const Node& node : graph.nodes) {
    if (!needed[static_cast<size_t>(node.id)]) continue;
    Node& kept = main.nodes.emplace_back(node);
    kept.id = new_ids[static_cast<size_t>(node.id)] = static_cast<int>(main.nodes.size()) - 1;
    for (int& input : kept.inputs) input = new_ids[static_cast<size_t>(input)];
  }
  main.outputs.front().node = new_ids[static_cast<size_t>(graph.output())];
  return main;
}

int64_t parameter_count(const Node& node) {
  int64_t count = 0;
  for (const ParameterSpec& spec : node.parameters) count += element_count(spec.shape);
  return count;
}

int64_t forward_flops(const Graph& graph, const Node& node) {
  if (const auto* convolution = std::get_if<Convolution>(&node.op)) {
    const int64_t channels = graph.nodes[static_cast<size_t>(node.inputs[0])].shape[0];
    return 2 * element_count(node.shape) * (channels / convolution->groups) * convolution->kernel.height *
           convolution->kernel.width;
  }
  if (const auto* convolution = std::get_if<TransposedConvolution>(&node.op)) {
    const Shape& image = graph.nodes[static_cast<size_t>(node.inputs[0])].shape;
    return 2 * element_count(image) * (convolution->out_channels / convolution->groups) * convolution->kernel.height *
           convolution->kernel.width;
  }
  if (const auto* attention = std::get_if<Attention>(&node.op)) {
    const Shape& image = graph.nodes[static_cast<size_t>(node.inputs[0])].shape;
    const int64_t tokens = attention->window > 0 ? attention->window * attention->window : image[1] * image[2];
    return 2 * 2 * element_count(node.shape) * tokens;  // queries with keys, and their weights with values
  }
  if (std::holds_alternative<Linear>(node.op)) {
    return 2 * node.shape[0] * graph.nodes[static_cast<size_t>(node.inputs[0])].shape[0];
  }
  return 0;
}

int64_t Graph::parameter_count() const {
  int64_t count = 0;
  for (const Node& each : nodes) count += nn::parameter_count(each);
  return count;
}

int64_t Graph::forward_flops() const {
  int64_t count = 0;
  for (const Node& each : nodes) count += nn::forward_flops(*this, each);
  return count;
}

}  // namespace trainyard::nn
