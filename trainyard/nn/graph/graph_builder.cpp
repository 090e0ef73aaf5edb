#include <utility>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

GraphBuilder::GraphBuilder(Options options) : batch_norm_(options.batch_norm) {
  if (options.image.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a graph needs the shape of its input",
                                                          .where = options.name,
                                                          .expected = "[C, H, W] or [F]",
                                                          .actual = "[]"});
  }
  for (int64_t extent : options.image) {
    if (extent > 0) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a graph's input has an extent that is not positive",
                       .where = options.name,
                       .actual = to_string(options.image)});
  }
  graph_.name = std::move(options.name);
  graph_.nodes.push_back({.id = 0, .name = "input", .op = Input{}, .shape = std::move(options.image)});
}

GraphBuilder::Value GraphBuilder::append(std::string name, Op op, const std::vector<Value>& inputs) {
  const auto fail = [&](std::string problem) {
    return core::Error(core::ErrorCode::kInvalidArgument,
                       {.problem = std::move(problem), .where = fmt::format("node '{}' of {}", name, graph_.name)});
  };
  if (name.empty()) throw fail("a node needs a name");
  for (const Node& other : graph_.nodes) {
    if (other.name == name) throw fail("a node of this name exists already");
  }
  Node node{.id = static_cast<int>(graph_.nodes.size()), .name = name, .op = std::move(op)};
  std::vector<Shape> shapes;
  for (Value input : inputs) {
    if (input.id < 0 || input.id >= node.id) throw fail("an input is not a value of this builder");
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
GraphBuilder::Value GraphBuilder::foreign(std::string name, Value x, Foreign op) {
  return append(std::move(name), std::move(op), {x});
}

const Shape& GraphBuilder::shape(Value value) const {
  return graph_.nodes.at(static_cast<size_t>(value.id)).shape;
}

Graph GraphBuilder::build(Value output) {
  std::vector<bool> needed(graph_.nodes.size(), false);
  needed.at(static_cast<size_t>(output.id)) = true;
  for (size_t id = graph_.nodes.size(); id-- > 0;) {
    const Node& node = graph_.nodes[id];
    if (!needed[id]) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "the graph's output does not need this node",
                         .where = fmt::format("node '{}' of {}", node.name, graph_.name)});
    }
    for (int input : node.inputs) needed[static_cast<size_t>(input)] = true;
  }
  graph_.output = output.id;
  return std::move(graph_);
}

}  // namespace trainyard::nn
