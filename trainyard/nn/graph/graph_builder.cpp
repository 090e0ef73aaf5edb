#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

core::Error node_error(const Graph& graph, std::string_view node, std::string problem) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = std::move(problem), .where = fmt::format("node '{}' of {}", node, graph.name)}};
}

}  // namespace

GraphBuilder::GraphBuilder(Options options) : batch_norm_(options.batch_norm) {
  graph_.name = std::move(options.name);
  add_input("input", std::move(options.input), std::move(options.image));
}

void GraphBuilder::check_name(const std::string& node) const {
  if (node.empty()) throw node_error(graph_, node, "a node needs a name");
  for (const Node& other : graph_.nodes) {
    if (other.name == node) throw node_error(graph_, node, "a node of this name exists already");
  }
}

void GraphBuilder::add_input(std::string node, std::string name, Shape shape) {
  const auto fail = [&](std::string problem, std::string expected) {
    const std::string where = node == "input" ? graph_.name : fmt::format("input '{}' of {}", name, graph_.name);
    return core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = std::move(problem), .where = where, .expected = std::move(expected), .actual = to_string(shape)});
  };
  if (shape.empty()) throw fail("a graph needs the shape of its input", "[C, H, W] or [F]");
  for (int64_t extent : shape) {
    if (extent <= 0) throw fail("a graph's input has an extent that is not positive", "");
  }
  check_name(node);
  if (name.empty()) throw node_error(graph_, node, "an input needs a name");
  for (const Node& other : graph_.nodes) {
    const auto* input = std::get_if<Input>(&other.op);
    if (input != nullptr && input->name == name) throw node_error(graph_, node, "an input of this name exists already");
  }
  graph_.nodes.push_back({.id = static_cast<int>(graph_.nodes.size()),
                          .name = std::move(node),
                          .op = Input{std::move(name)},
                          .shape = std::move(shape)});
}

GraphBuilder::Value GraphBuilder::input(std::string name, Shape shape) {
  std::string node = name;
  add_input(std::move(node), std::move(name), std::move(shape));
  return {graph_.nodes.back().id};
}

GraphBuilder::Value GraphBuilder::append(std::string name, Op op, const std::vector<Value>& inputs) {
  check_name(name);
  Node node{.id = static_cast<int>(graph_.nodes.size()), .name = std::move(name), .op = std::move(op)};
  std::vector<Shape> shapes;
  for (Value input : inputs) {
    if (input.id < 0 || input.id >= node.id)
      throw node_error(graph_, node.name, "an input is not a value of this builder");
    node.inputs.push_back(input.id);
    shapes.push_back(graph_.nodes[static_cast<size_t>(input.id)].shape);
  }
  infer_node(node, shapes);
  graph_.nodes.push_back(std::move(node));
  return {graph_.nodes.back().id};
}

GraphBuilder::Value GraphBuilder::convolution(std::string name, Value x, Convolution op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::batch_norm(std::string name, Value x) {
  return append(std::move(name), batch_norm_, {x});
}
GraphBuilder::Value GraphBuilder::batch_norm(std::string name, Value x, BatchNorm op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::activation(std::string name, Value x, Activation::Function function) {
  return append(std::move(name), Activation{function}, {x});
}
GraphBuilder::Value GraphBuilder::max_pool(std::string name, Value x, Pool op) {
  op.kind = Pool::Kind::kMax;
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::average_pool(std::string name, Value x, Pool op) {
  op.kind = Pool::Kind::kAverage;
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::global_average_pool(std::string name, Value x) {
  return append(std::move(name), GlobalAveragePool{}, {x});
}
GraphBuilder::Value GraphBuilder::adaptive_average_pool(std::string name, Value x, Size2d size) {
  return append(std::move(name), AdaptiveAveragePool{size}, {x});
}
GraphBuilder::Value GraphBuilder::linear(std::string name, Value x, Linear op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::flatten(std::string name, Value x) {
  return append(std::move(name), Flatten{}, {x});
}
GraphBuilder::Value GraphBuilder::add(std::string name, const std::vector<Value>& inputs) {
  return append(std::move(name), Add{}, inputs);
}
GraphBuilder::Value GraphBuilder::multiply(std::string name, Value x, Value scale) {
  return append(std::move(name), Multiply{}, {x, scale});
}
GraphBuilder::Value GraphBuilder::concat(std::string name, const std::vector<Value>& inputs) {
  return append(std::move(name), Concat{}, inputs);
}
GraphBuilder::Value GraphBuilder::channel_pad(std::string name, Value x, ChannelPad op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::spatial_pad(std::string name, Value x, SpatialPad op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::channel_slice(std::string name, Value x, ChannelSlice op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::channel_shuffle(std::string name, Value x, int64_t groups) {
  return append(std::move(name), ChannelShuffle{groups}, {x});
}
GraphBuilder::Value GraphBuilder::dropout(std::string name, Value x, double drop) {
  return append(std::move(name), Dropout{drop}, {x});
}
GraphBuilder::Value GraphBuilder::stochastic_depth(std::string name, Value x, double drop) {
  return append(std::move(name), StochasticDepth{drop}, {x});
}
GraphBuilder::Value GraphBuilder::local_response_norm(std::string name, Value x, LocalResponseNorm op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::layer_norm(std::string name, Value x, LayerNorm op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::layer_scale(std::string name, Value x, LayerScale op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::class_token(std::string name, Value x, ClassToken op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::position_embedding(std::string name, Value x, PositionEmbedding op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::attention(std::string name, Value x, Attention op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::patch_merge(std::string name, Value x) {
  return append(std::move(name), PatchMerge{}, {x});
}
GraphBuilder::Value GraphBuilder::transposed_convolution(std::string name, Value x, TransposedConvolution op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::upsample(std::string name, Value x, Upsample op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::l2_norm(std::string name, Value x, L2Norm op) {
  return append(std::move(name), op, {x});
}
GraphBuilder::Value GraphBuilder::box_rows(std::string name, const std::vector<Value>& inputs, BoxRows op) {
  return append(std::move(name), op, inputs);
}
GraphBuilder::Value GraphBuilder::foreign(std::string name, Value x, Foreign op) {
  return append(std::move(name), std::move(op), {x});
}
GraphBuilder::Value GraphBuilder::foreign(std::string name, const std::vector<Value>& inputs, Foreign op) {
  return append(std::move(name), std::move(op), inputs);
}

const Shape& GraphBuilder::shape(Value value) const {
  return graph_.nodes.at(static_cast<size_t>(value.id)).shape;
}

void GraphBuilder::check_outputs(const std::vector<GraphOutput>& outputs) const {
  const auto fail = [&](std::string problem, const std::string& output) {
    return core::Error(core::ErrorCode::kInvalidArgument,
                       {.problem = std::move(problem), .where = fmt::format("output '{}' of {}", output, graph_.name)});
  };
  if (outputs.empty()) throw fail("a graph needs an output", "");
  std::set<std::string_view> names;
  for (const auto& [name, node, loss_weight] : outputs) {
    if (name.empty()) throw fail("an output needs a name", name);
    if (!names.insert(name).second) throw fail("an output of this name exists already", name);
    if (node < 0 || static_cast<size_t>(node) >= graph_.nodes.size()) {
      throw fail("an output is not a value of this builder", name);
    }
    if (!(loss_weight >= 0) || !std::isfinite(loss_weight)) {
      throw fail(fmt::format("a loss has the weight {}", loss_weight), name);
    }
  }
}

Graph GraphBuilder::build(Value output, std::vector<GraphOutput> others) {
  others.insert(others.begin(), {.name = "logits", .node = output.id});
  return build(std::move(others));
}

Graph GraphBuilder::build(std::vector<GraphOutput> outputs) {
  check_outputs(outputs);
  std::vector<bool> needed(graph_.nodes.size(), false);
  for (const GraphOutput& output : outputs) needed[static_cast<size_t>(output.node)] = true;
  for (size_t id = graph_.nodes.size(); id-- > 0;) {
    const Node& node = graph_.nodes[id];
    if (!needed[id]) {
      throw node_error(
          graph_, node.name,
          outputs.size() == 1 ? "the graph's output does not need this node" : "no output needs this node");
    }
    for (int input : node.inputs) needed[static_cast<size_t>(input)] = true;
  }
  graph_.outputs = std::move(outputs);
  return std::move(graph_);
}

}  // namespace trainyard::nn
