#include "trainyard/nn/graph/quantized_nodes.h"

#include <cmath>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

using core::Error;
using core::ErrorCode;

constexpr const char* kRemedy = "quantize the model again";

bool is_scale(float scale) {
  return std::isfinite(scale) && scale > 0 && std::isfinite(1 / scale);
}

std::string text_of(const ActivationScale& scale) {
  return fmt::format("{} with zero point {}", scale.scale, scale.zero_point);
}

void check_activation(const Node& node, const ActivationScale& scale) {
  if (is_scale(scale.scale)) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "the scale of an activation is not usable",
                                            .where = node.name,
                                            .expected = "a positive, finite number",
                                            .actual = fmt::format("{}", scale.scale),
                                            .remedy = kRemedy});
}

// Returns the number of products in each of the layer's sums, or 0 for another node.
int64_t terms_of(const Node& node, const Graph& graph) {
  if (node.inputs.empty()) return 0;
  const Shape& input = graph.nodes[static_cast<size_t>(node.inputs[0])].shape;
  if (std::holds_alternative<Linear>(node.op)) return input.at(0);
  const auto* const op = std::get_if<Convolution>(&node.op);
  return op == nullptr ? 0 : input.at(0) / op->groups * op->kernel.height * op->kernel.width;
}

void check_weights(const Node& node, const std::vector<float>& scales, const Graph& graph,
                   const QuantizedNodes& nodes) {
  const int64_t terms = terms_of(node, graph);
  if (terms == 0) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "weight scales are given for a layer without such weights",
                                              .where = node.name,
                                              .expected = "a convolution or a linear layer",
                                              .actual = std::string(node.kind()),
                                              .remedy = kRemedy});
  }
  if (terms > kMostQuantizedTerms) {
    throw Error(ErrorCode::kUnsupported, {.problem = "the sums of a layer may not fit 32 bits",
                                          .where = node.name,
                                          .expected = fmt::format("at most {} products", kMostQuantizedTerms),
                                          .actual = std::to_string(terms),
                                          .remedy = "leave this layer in float"});
  }
  if (static_cast<int64_t>(scales.size()) != node.shape.at(0)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the weight scales do not fit the layer",
                                              .where = node.name,
                                              .expected = fmt::format("{}, one an output channel", node.shape.at(0)),
                                              .actual = std::to_string(scales.size()),
                                              .remedy = kRemedy});
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    if (is_scale(scales[i])) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the scale of a layer's weights is not usable",
                                              .where = fmt::format("{}, output channel {}", node.name, i),
                                              .expected = "a positive, finite number",
                                              .actual = fmt::format("{}", scales[i]),
                                              .remedy = kRemedy});
  }
  if (nodes.activations[static_cast<size_t>(node.inputs[0])] != nullptr) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "a layer with weights in 8 bits reads values that have no scale",
               .where = node.name,
               .expected = fmt::format("a scale of '{}'", graph.nodes[static_cast<size_t>(node.inputs[0])].name),
               .actual = "none",
               .remedy = kRemedy});
}

void check_kept_scale(const Node& node, const Graph& graph, const QuantizedNodes& nodes) {
  const ActivationScale* const own = nodes.activations[static_cast<size_t>(node.id)];
  if (own == nullptr || !keeps_scale(node.op)) return;
  const Node& source = graph.nodes[static_cast<size_t>(node.inputs[0])];
  const ActivationScale* const input = nodes.activations[static_cast<size_t>(source.id)];
  if (input != nullptr && *input == *own) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("a layer of kind {} keeps the scale of its input", node.kind()),
               .where = node.name,
               .expected = input == nullptr ? fmt::format("none, as '{}' has none", source.name)
                                            : fmt::format("that of '{}', {}", source.name, text_of(*input)),
               .actual = text_of(*own),
               .remedy = kRemedy});
}

}  // namespace

bool keeps_scale(const Op& op) {
  const auto* const pool = std::get_if<Pool>(&op);
  return (pool != nullptr && pool->kind == Pool::Kind::kMax) || std::holds_alternative<Flatten>(op) ||
         std::holds_alternative<Dropout>(op) || std::holds_alternative<StochasticDepth>(op) ||
         std::holds_alternative<ChannelPad>(op) || std::holds_alternative<ChannelSlice>(op) ||
         std::holds_alternative<ChannelShuffle>(op) || std::holds_alternative<SpatialPad>(op) ||
         std::holds_alternative<PatchMerge>(op);
}

QuantizedNodes quantized_nodes(const Graph& graph, const Quantization& quantization) {
  QuantizedNodes result{.activations = std::vector<const ActivationScale*>(graph.nodes.size()),
                        .weights = std::vector<const std::vector<float>*>(graph.nodes.size())};
  for (const auto& [name, scale] : quantization.activations) {
    const Node& node = graph.node(name);
    check_activation(node, scale);
    result.activations[static_cast<size_t>(node.id)] = &scale;
  }
  for (const auto& [name, scales] : quantization.weights) {
    const Node& node = graph.node(name);
    check_weights(node, scales, graph, result);
    result.weights[static_cast<size_t>(node.id)] = &scales;
  }
  for (const Node& node : graph.nodes) check_kept_scale(node, graph, result);
  return result;
}

}  // namespace trainyard::nn
