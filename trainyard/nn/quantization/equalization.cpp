#include "trainyard/nn/quantization/equalization.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "trainyard/nn/quantization/calibration.h"
#include "trainyard/nn/quantization/weights_of.h"

namespace trainyard::nn {
namespace {

constexpr int kSweeps = 20;             // at most, over all pairs
constexpr double kSettled = 1e-3;       // no factor differs more from 1: the next sweep would change nothing
constexpr double kRelu6 = 0.8 * 6;      // values that further images will leave below 6, too
constexpr double kLargestFactor = 1e4;  // of a channel: beyond it one side is zero in effect

std::vector<std::vector<int>> readers_of(const Graph& graph) {
  std::vector<std::vector<int>> readers(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    for (int input : node.inputs) readers[static_cast<size_t>(input)].push_back(node.id);
  }
  return readers;
}

const Node& node_at(const Graph& graph, int id) {
  return graph.nodes[static_cast<size_t>(id)];
}

// A view of the weight that is read by input channel: [C in, ...] where the group of channel c is the c / (C /
// groups)th. The first dimension of `weight` is that of output channels, the second that of a group's input channels.
at::Tensor by_input_channel(const Node& layer, const at::Tensor& weight) {
  const int64_t groups = groups_of(layer.op);
  // [groups, out / groups, in / groups, pixels] -> [groups, in / groups, out / groups, pixels]
  return weight.view({groups, weight.size(0) / groups, weight.size(1), -1}).transpose(1, 2);
}

// Returns the largest absolute weight that reads each input channel, [C in].
at::Tensor largest_by_input(const Node& layer, const ParameterSet& set) {
  return by_input_channel(layer, weight_of(layer, set)).abs().flatten(2).amax(2).flatten();
}

void multiply_inputs(const Node& layer, ParameterSet& set, const at::Tensor& factors) {
  at::Tensor weight = weight_of(layer, set);
  at::Tensor view = by_input_channel(layer, weight);
  view.mul_(factors.view({view.size(0), view.size(1), 1, 1}));
}

// Divides output channels `begin` to the end of `factors` behind it.
void divide_outputs(const Node& layer, ParameterSet& set, const at::Tensor& factors, int64_t begin = 0) {
  at::Tensor weight = weight_of(layer, set).narrow(0, begin, factors.numel());
  std::vector<int64_t> by_channel(static_cast<size_t>(weight.dim()), 1);
  by_channel[0] = -1;
  weight.div_(factors.view(by_channel));
  if (has_bias(layer.op)) bias_of(layer, set).narrow(0, begin, factors.numel()).div_(factors);
}

// Returns 1 where a factor is not a number that can be divided by.
at::Tensor usable(const at::Tensor& factors) {
  const at::Tensor good = factors.ge(1 / kLargestFactor).logical_and(factors.le(kLargestFactor));
  return at::where(good, factors, at::ones_like(factors));
}

}  // namespace

std::vector<LayerPair> find_pairs(const Graph& graph) {
  const std::vector<std::vector<int>> readers = readers_of(graph);
  const auto only_reader = [&](int id) -> const Node* {
    const std::vector<int>& of = readers[static_cast<size_t>(id)];
    return of.size() == 1 && !graph.is_output(id) ? &node_at(graph, of[0]) : nullptr;
  };
  std::vector<LayerPair> pairs;
  for (const Node& first : graph.nodes) {
    if (!is_weighted(first.op)) continue;
    LayerPair pair{.first = first.id};
    const Node* next = only_reader(first.id);
    const auto* activation = next != nullptr ? std::get_if<Activation>(&next->op) : nullptr;
    if (activation != nullptr &&
        (activation->function == Activation::Function::kRelu || activation->function == Activation::Function::kRelu6)) {
      pair.activation = next->id;
      next = only_reader(next->id);
    }
    if (next == nullptr || !is_weighted(next->op)) continue;
    pair.second = next->id;
    pairs.push_back(pair);
  }
  return pairs;
}

bool is_depthwise_network(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    const auto* convolution = std::get_if<Convolution>(&node.op);
    return convolution != nullptr && convolution->groups > 1 && convolution->groups == convolution->out_channels;
  });
}

int64_t equalize_layers(FoldedNetwork& network, std::span<const at::Tensor> batches) {
  const at::NoGradGuard no_grad;
  const Graph& graph = network.graph;
  ParameterSet& set = *network.parameters;
  const std::vector<LayerPair> pairs = find_pairs(graph);
  std::vector<int> limited;  // what a ReLU6 reads
  for (const LayerPair& pair : pairs) {
    if (pair.activation < 0) continue;
    const auto& op = std::get<Activation>(node_at(graph, pair.activation).op);
    if (op.function == Activation::Function::kRelu6) limited.push_back(pair.first);
  }
  std::map<int, ChannelMaxima> maxima = channel_maxima(network, batches, limited);
  std::map<int, at::Tensor> scaled;  // by first node: which channels
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double largest_change = 0;
    for (const LayerPair& pair : pairs) {
      const Node &first = node_at(graph, pair.first), &second = node_at(graph, pair.second);
      const at::Tensor written = weight_of(first, set).abs().flatten(1).amax(1);
      at::Tensor factors = usable(written.div(largest_by_input(second, set)).sqrt_());
      if (const auto of = maxima.find(pair.first); of != maxima.end()) {
        at::Tensor& largest = of->second.largest;
        factors = at::where(largest.le(kRelu6), at::maximum(factors, largest.div(kRelu6)), at::ones_like(factors));
        factors = usable(factors);
        largest = largest.div(factors);
      }
      divide_outputs(first, set, factors);
      multiply_inputs(second, set, factors);
      const at::Tensor change = factors.log().abs_();
      largest_change = std::max(largest_change, change.amax().item<double>());
      const at::Tensor changed = change.gt(0);
      at::Tensor& known = scaled[pair.first];
      known = known.defined() ? known.logical_or(changed) : changed;
    }
    if (largest_change < kSettled) break;
  }
  set.values_changed();
  int64_t channels = 0;
  for (const auto& [id, which] : scaled) channels += which.sum().item<int64_t>();
  return channels;
}

namespace {

// An activation whose channels can be scaled.
struct Smoothable {
  int activation = 0;              // node id of a layer norm or an attention
  std::vector<int> layers{};       // what reads it
  std::optional<int> values_of{};  // node id of the layer that gives the attention its queries, keys and values
};

std::vector<Smoothable> find_smoothable(const Graph& graph) {
  const std::vector<std::vector<int>> readers = readers_of(graph);
  std::vector<Smoothable> found;
  for (const Node& node : graph.nodes) {
    const bool attention = std::holds_alternative<Attention>(node.op);
    if ((!attention && !std::holds_alternative<LayerNorm>(node.op)) || graph.is_output(node.id)) continue;
    const std::vector<int>& layers = readers[static_cast<size_t>(node.id)];
    // A layer that adds the activation, too, would read it twice.
    const bool only_layers =
        std::all_of(layers.begin(), layers.end(), [&](int id) { return is_weighted(node_at(graph, id).op); });
    if (layers.empty() || !only_layers) continue;
    Smoothable smoothable{.activation = node.id, .layers = layers};
    if (attention) {
      const int before = node.inputs[0];
      const bool alone = readers[static_cast<size_t>(before)].size() == 1 && !graph.is_output(before);
      if (!alone || !is_weighted(node_at(graph, before).op)) continue;
      smoothable.values_of = before;
    }
    found.push_back(std::move(smoothable));
  }
  return found;
}

}  // namespace

int64_t smoothable_activations(const Graph& graph) {
  return std::ssize(find_smoothable(graph));
}

int64_t smooth_activations(FoldedNetwork& network, std::span<const at::Tensor> batches, double alpha) {
  const at::NoGradGuard no_grad;
  const Graph& graph = network.graph;
  ParameterSet& set = *network.parameters;
  std::vector<Smoothable> all = find_smoothable(graph);
  // Attentions first: they change weights that the layer norms before them are balanced with.
  std::stable_partition(all.begin(), all.end(), [](const Smoothable& one) { return one.values_of.has_value(); });
  std::vector<int> activations;
  for (const Smoothable& one : all) activations.push_back(one.activation);
  const std::map<int, ChannelMaxima> maxima = channel_maxima(network, batches, activations);
  for (const Smoothable& one : all) {
    at::Tensor weights;
    for (int layer : one.layers) {
      const at::Tensor of_layer = largest_by_input(node_at(graph, layer), set);
      weights = weights.defined() ? at::maximum(weights, of_layer) : of_layer;
    }
    const at::Tensor factors = usable(maxima.at(one.activation).absolute.pow(alpha).div(weights.pow(1 - alpha)));
    for (int layer : one.layers) multiply_inputs(node_at(graph, layer), set, factors);
    const Node& node = node_at(graph, one.activation);
    if (one.values_of) {
      divide_outputs(node_at(graph, *one.values_of), set, factors, 2 * factors.numel());
    } else {
      for (const ParameterSpec& spec : node.parameters) set.value(*set.find(spec.name)).div_(factors);
    }
  }
  set.values_changed();
  return std::ssize(all);
}

}  // namespace trainyard::nn
