#include "trainyard/nn/graph/training_options.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

core::Error graph_error(const Graph& graph, std::string problem, std::string expected) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = std::move(problem), .where = graph.name, .expected = std::move(expected)}};
}

void require_probability(const Graph& graph, const char* what, double drop) {
  if (drop >= 0 && drop < 1) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not usable", what),
                                                        .where = graph.name,
                                                        .expected = "a probability in [0, 1)",
                                                        .actual = fmt::format("{}", drop)});
}

bool has_weights(const Node& node) {
  return std::holds_alternative<Convolution>(node.op) || std::holds_alternative<Linear>(node.op) ||
         std::holds_alternative<TransposedConvolution>(node.op);
}

// A layer that comes between a node and one of its inputs.
struct Insertion {
  std::string name;
  Op op;
  size_t input = 0;  // index in Node::inputs
};

// Returns the graph with layers in front of the nodes of these ids. All other nodes keep their order.
Graph insert(const Graph& graph, const std::map<int, Insertion>& before) {
  Graph result{.name = graph.name, .outputs = graph.outputs};
  std::vector<int> new_ids;
  for (const Node& node : graph.nodes) {
    Node copy = node;
    for (int& input : copy.inputs) input = new_ids[static_cast<size_t>(input)];
    if (const auto found = before.find(node.id); found != before.end()) {
      int& source = copy.inputs[found->second.input];
      Node layer{.id = static_cast<int>(result.nodes.size()),
                 .name = found->second.name,
                 .op = found->second.op,
                 .inputs = {source}};
      infer_node(layer, {result.nodes[static_cast<size_t>(source)].shape});
      source = layer.id;
      result.nodes.push_back(std::move(layer));
    }
    copy.id = static_cast<int>(result.nodes.size());
    new_ids.push_back(copy.id);
    result.nodes.push_back(std::move(copy));
  }
  for (GraphOutput& output : result.outputs) output.node = new_ids[static_cast<size_t>(output.node)];
  return result;
}

// Returns which nodes `id` depends on, itself among them.
std::vector<bool> ancestors_of(const Graph& graph, int id) {
  std::vector<bool> found(graph.nodes.size(), false);
  found[static_cast<size_t>(id)] = true;
  for (auto at = static_cast<size_t>(id) + 1; at-- > 0;) {
    if (!found[at]) continue;
    for (const int input : graph.nodes[at].inputs) found[static_cast<size_t>(input)] = true;
  }
  return found;
}

// Returns the most convolutions and linear layers on a way from `begin` to `end`.
int longest_way(const Graph& graph, int begin, int end) {
  std::vector<int> length(graph.nodes.size(), -1);
  length[static_cast<size_t>(begin)] = 0;
  for (int id = begin + 1; id <= end; ++id) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    int& own = length[static_cast<size_t>(id)];
    for (const int input : node.inputs) own = std::max(own, length[static_cast<size_t>(input)]);
    if (own >= 0 && has_weights(node)) ++own;
  }
  return length[static_cast<size_t>(end)];
}

// Returns which input of a sum is the branch of a residual block.
std::optional<size_t> branch_of(const Graph& graph, const Node& node) {
  if (!std::holds_alternative<Add>(node.op) || node.inputs.size() != 2) return std::nullopt;
  const std::vector<bool> first = ancestors_of(graph, node.inputs[0]), second = ancestors_of(graph, node.inputs[1]);
  int begin = node.id - 1;
  while (begin >= 0 && !(first[static_cast<size_t>(begin)] && second[static_cast<size_t>(begin)])) --begin;
  if (begin < 0) return std::nullopt;
  const int of_first = longest_way(graph, begin, node.inputs[0]), of_second = longest_way(graph, begin, node.inputs[1]);
  if (of_first == of_second) return std::nullopt;
  return of_first > of_second ? 0 : 1;
}

// Calls `change` with each operation of the kind Op. Returns true when there was one.
template <typename Op, typename Change>
bool change_each(Graph& graph, const Change& change) {
  bool any = false;
  for (Node& node : graph.nodes) {
    if (auto* const op = std::get_if<Op>(&node.op)) {
      change(*op);
      any = true;
    }
  }
  return any;
}

}  // namespace

Graph with_batch_norm_decay(const Graph& graph, double decay) {
  if (!(decay >= 0 && decay <= 1)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the decay of batch norms is not usable",
                                                          .where = graph.name,
                                                          .expected = "a number in [0, 1]",
                                                          .actual = fmt::format("{}", decay)});
  }
  Graph result = graph;
  if (!change_each<BatchNorm>(result, [&](BatchNorm& norm) { norm.decay = decay; })) {
    throw graph_error(graph, "there are no batch norms to set the decay of", "a model with batch norms");
  }
  return result;
}

const Node* last_layer(const Graph& graph, const GraphOutput& output) {
  const Node* last = &graph.nodes[static_cast<size_t>(output.node)];
  while (!has_weights(*last) && last->inputs.size() == 1 && last->parameters.empty()) {
    last = &graph.nodes[static_cast<size_t>(last->inputs[0])];
  }
  return has_weights(*last) ? last : nullptr;
}

Graph with_dropout(const Graph& graph, double drop) {
  require_probability(graph, "the rate of dropout", drop);
  Graph result = graph;
  if (change_each<Dropout>(result, [&](Dropout& dropout) { dropout.drop = drop; })) return result;
  const Node* const last = last_layer(graph, graph.outputs.front());
  if (last == nullptr) {
    throw graph_error(graph, "there is no dropout, and no last layer to put one in front of",
                      "an output of a linear layer or a convolution");
  }
  return insert(graph, {{last->id, {.name = last->name + ".dropout", .op = Dropout{drop}}}});
}

Graph with_stochastic_depth(const Graph& graph, double drop) {
  require_probability(graph, "the rate of stochastic depth", drop);
  std::map<int, Insertion> layers;
  for (const Node& node : graph.nodes) {
    if (std::holds_alternative<StochasticDepth>(node.op)) {
      throw graph_error(graph, "the graph has layers of stochastic depth already", "one whose builder takes the rate");
    }
    if (const auto branch = branch_of(graph, node)) {
      layers[node.id] = {.name = node.name + ".stochastic_depth", .op = StochasticDepth{}, .input = *branch};
    }
  }
  if (layers.empty()) {
    throw graph_error(graph, "there are no residual blocks for stochastic depth", "a residual network");
  }
  int place = 0;
  for (auto& [id, layer] : layers) layer.op = StochasticDepth{drop * ++place / static_cast<double>(layers.size())};
  return insert(graph, layers);
}

}  // namespace trainyard::nn
