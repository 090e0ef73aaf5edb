#include "trainyard/nn/quantization/quantization_aware.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/quantized_nodes.h"
#include "trainyard/nn/quantization/fold_batch_norms.h"
#include "trainyard/nn/quantization/quantization_sites.h"
#include "trainyard/nn/quantization/rounding.h"
#include "trainyard/nn/quantization/weights_of.h"

namespace trainyard::nn {
namespace {

using core::Error, core::ErrorCode;

constexpr std::string_view kScale = ".activation_scale", kZeroPoint = ".activation_zero_point";

void fill(ParameterSet& set, const std::string& buffer, double value) {
  set.buffer(*set.find_buffer(buffer)).fill_(value);
}

bool has_node(const Graph& graph, std::string_view name) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.name == name; });
}

// Returns whether with_dropout() or with_stochastic_depth() put the layer of this name into the graph that was trained.
// It passes values on in inference, so that the graph without it needs no scale for it.
bool was_inserted(const Graph& graph, std::string_view node) {
  if (has_node(graph, node)) return false;
  for (const std::string_view end : {".dropout", ".stochastic_depth"}) {
    if (node.ends_with(end) && has_node(graph, node.substr(0, node.size() - end.size()))) return true;
  }
  return false;
}

// The layer that torchvision's VGG and AlexNet have at other image sizes than their own alone, with which they average
// their last image to the size of their classifier.
constexpr std::string_view kPoolOfOtherSizes = "avgpool";

// Adapts the scales of a training to a graph for another image size. The averages of a pool that the training lacked
// are in the range of what it averages. A value that is moved from one for which the training has no scale stays in
// float, and so do all that it is moved to.
void adapt_scales(const Graph& graph, const TrainingScales& trained, const QuantizationSites& sites,
                  std::map<std::string, ActivationScale>& scales) {
  for (const Node& node : graph.nodes) {
    if (node.inputs.empty()) continue;
    const std::string& input = graph.nodes[static_cast<size_t>(node.inputs[0])].name;
    const auto of_input = scales.find(input);
    const auto in_training = trained.find(input);
    const bool is_new = !trained.contains(node.name) && sites.range_of[static_cast<size_t>(node.id)] >= 0;
    if (is_new && std::holds_alternative<AdaptiveAveragePool>(node.op) && of_input != scales.end()) {
      const ActivationScale scale = of_input->second;
      scales[node.name] = scale;
    } else if (keeps_scale(node.op) && of_input == scales.end() &&
               (in_training == trained.end() || in_training->second.scale > 0)) {
      scales.erase(node.name);  // the input's was missing, or was erased here
    }
  }
}

}  // namespace

std::string training_scale_name(const std::string& node) {
  return node + std::string(kScale);
}

std::string training_zero_point_name(const std::string& node) {
  return node + std::string(kZeroPoint);
}

std::string scaled_node(const std::string& buffer) {
  for (const std::string_view end : {kScale, kZeroPoint}) {
    if (buffer.ends_with(end)) return buffer.substr(0, buffer.size() - end.size());
  }
  return "";
}

ActivationScale training_scale(const std::string& node, double scale, double zero_point) {
  const auto number = static_cast<float>(scale);
  const bool is_scale = number == 0 || (number > 0 && std::isfinite(number) && std::isfinite(1 / number));
  if (is_scale && zero_point >= 0 && zero_point <= 255 && zero_point == std::floor(zero_point)) {
    return {.scale = number, .zero_point = static_cast<uint8_t>(zero_point)};
  }
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "the scale of an activation is not usable",
               .where = node,
               .expected = "0, or a positive, finite number, and a zero point in 0..255",
               .actual = fmt::format("{} with zero point {}", scale, zero_point),
               .remedy = "take an earlier checkpoint, or begin the training with --qat again"});
}

TrainingScales training_scales(const ParameterSet& set) {
  TrainingScales scales;
  for (int index = 0; index < static_cast<int>(set.buffer_count()); ++index) {
    const std::string& name = set.buffer_spec(index).name;
    if (!name.ends_with(kScale)) continue;
    const std::string node = scaled_node(name);
    const auto zero = set.find_buffer(training_zero_point_name(node));
    if (!zero) continue;  // a custom layer's own
    scales[node] = training_scale(node, set.buffer(index).item<double>(), set.buffer(*zero).item<double>());
  }
  return scales;
}

QuantizationReport find_training_scales(const Graph& graph, ParameterSet& set, std::span<const at::Tensor> batches) {
  const QuantizedModel model = quantize(graph, set, batches, {.method = QuantizeMethod::kPlain});
  const at::NoGradGuard no_grad;
  for (const auto& [node, before] : training_scales(set)) {
    const auto found = model.quantization->activations.find(node);
    const bool has_scale = found != model.quantization->activations.end();
    fill(set, training_scale_name(node), has_scale ? double{found->second.scale} : 0.0);
    fill(set, training_zero_point_name(node), has_scale ? static_cast<double>(found->second.zero_point) : 0.0);
  }
  return model.report;
}

QuantizedModel quantize_by_scales(const Graph& graph, const ParameterSet& parameters, const TrainingScales& scales) {
  const at::NoGradGuard no_grad;
  FoldedNetwork network = fold_batch_norms(graph, parameters, /*all_biases=*/true);
  auto quantization = std::make_shared<Quantization>();
  for (const auto& [node, scale] : scales) {
    if (was_inserted(network.graph, node)) continue;
    if (node == kPoolOfOtherSizes && !has_node(network.graph, node)) continue;
    static_cast<void>(network.graph.node(node));  // throws for one that the graph lacks
    if (scale.scale > 0) quantization->activations[node] = scale;
  }
  if (quantization->activations.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the training has no scales of 8 bits",
                                              .where = network.graph.name,
                                              .expected = "a training with --qat",
                                              .actual = "none"});
  }
  const QuantizationSites all = find_sites(network.graph);
  adapt_scales(network.graph, scales, all, quantization->activations);
  std::map<int, std::string> unavailable;
  for (const Node& node : network.graph.nodes) {
    const bool wanted = all.range_of[static_cast<size_t>(node.id)] >= 0;
    if (wanted && !quantization->activations.contains(node.name)) {
      unavailable[node.id] = "had no scale in the training";
    }
  }
  const QuantizationSites sites = unavailable.empty() ? all : find_sites(network.graph, unavailable);
  QuantizationReport report;
  auto rounded = std::make_shared<ParameterSet>(network.parameters->clone());
  for (const Node& node : network.graph.nodes) {
    if (!sites.layers[static_cast<size_t>(node.id)]) continue;
    std::vector<float> weights = weight_scales(weight_of(node, *rounded));
    round_weights(node, weights, *rounded);
    quantization->weights[node.name] = std::move(weights);
    report.layers_in_8_bits.push_back(node.name);
  }
  rounded->values_changed();
  quantization->in_float = report.in_float = sites.in_float;
  static_cast<void>(quantized_nodes(network.graph, *quantization));
  return {.graph = std::move(network.graph),
          .parameters = std::move(rounded),
          .quantization = std::move(quantization),
          .report = std::move(report),
          .float_parameters = std::move(network.parameters)};
}

}  // namespace trainyard::nn
