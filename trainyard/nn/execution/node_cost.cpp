#include "trainyard/nn/execution/node_cost.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace trainyard::nn {
namespace {

using Phase = NodeRun::Phase;

bool needs_inputs_backward(const Op& op) {
  const auto* activation = std::get_if<Activation>(&op);
  return std::holds_alternative<Convolution>(op) || std::holds_alternative<TransposedConvolution>(op) ||
         std::holds_alternative<Linear>(op) || std::holds_alternative<BatchNorm>(op) ||
         std::holds_alternative<Multiply>(op) || std::holds_alternative<LocalResponseNorm>(op) ||
         std::holds_alternative<LayerNorm>(op) || std::holds_alternative<LayerScale>(op) ||
         std::holds_alternative<Attention>(op) || std::holds_alternative<L2Norm>(op) ||
         (activation != nullptr && activation->function != Activation::Function::kRelu);
}

}  // namespace

NodeCosts::NodeCosts(const Graph& graph, const NodeCostOptions& options)
    : graph_(graph), options_(options), wants_gradient_(graph.nodes.size()), users_(graph.nodes.size()) {
  for (const Node& each : graph.nodes) {
    const auto wants = [&](int input) { return wants_gradient_[static_cast<size_t>(input)]; };
    wants_gradient_[static_cast<size_t>(each.id)] = !each.parameters.empty() ||
                                                    std::holds_alternative<Foreign>(each.op) ||
                                                    std::any_of(each.inputs.begin(), each.inputs.end(), wants);
    for (const int input : each.inputs) users_[static_cast<size_t>(input)].push_back(each.id);
  }
  for (const GraphOutput& output : graph.outputs) users_[static_cast<size_t>(output.node)].push_back(-1);
}

int64_t NodeCosts::value_bytes(int id) const {
  const Shape& shape = node(id).shape;
  return std::accumulate(shape.begin(), shape.end(), options_.batch * options_.activation_bytes, std::multiplies<>());
}

int64_t NodeCosts::flops(std::span<const int> nodes, Phase phase) const {
  int64_t sum = 0;
  for (const int id : nodes) {
    const int64_t forward = options_.batch * forward_flops(graph_, node(id));
    if (phase == Phase::kForward) {
      sum += forward;
    } else if (forward > 0) {
      sum += wants_gradient_[static_cast<size_t>(node(id).inputs[0])] ? 2 * forward : forward;
    }
  }
  return sum;
}

int64_t NodeCosts::bytes(std::span<const int> nodes, Phase phase) const {
  const std::set<int> own(nodes.begin(), nodes.end());
  std::set<int> inputs, saved;
  int64_t sum = 0;
  for (const int id : own) {
    const int64_t parameters = parameter_count(node(id)) * options_.parameter_bytes;
    sum += phase == Phase::kForward ? parameters : 2 * parameters;
    for (const int input : node(id).inputs) {
      if (!own.contains(input)) inputs.insert(input);
      if (needs_inputs_backward(node(id).op)) saved.insert(input);
    }
    const std::vector<int>& users = users_[static_cast<size_t>(id)];
    const bool leaves = std::any_of(users.begin(), users.end(), [&](int user) { return !own.contains(user); });
    if (leaves) sum += value_bytes(id);
  }
  for (const int input : inputs) {
    if (phase == Phase::kForward || wants_gradient_[static_cast<size_t>(input)]) sum += value_bytes(input);
  }
  if (phase == Phase::kBackward) {
    for (const int input : saved) sum += value_bytes(input);
  }
  return sum;
}

}  // namespace trainyard::nn
