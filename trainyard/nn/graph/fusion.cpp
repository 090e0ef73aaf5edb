#include "trainyard/nn/graph/fusion.h"

#include <algorithm>

namespace trainyard::nn {
namespace {

class Fuser {
 public:
  Fuser(const Graph& graph, bool frozen, const Fusions& allowed, const Quantization* quantization)
      : graph_(graph),
        folds_(frozen && allowed.folded_norm),
        allowed_(allowed),
        users_(graph.nodes.size()),
        taken_(graph.nodes.size()),
        rounded_(graph.nodes.size()) {
    for (const Node& node : graph.nodes) {
      rounded_[static_cast<size_t>(node.id)] = quantization != nullptr && quantization->activations.contains(node.name);
      for (int input : node.inputs) users_[static_cast<size_t>(input)].push_back(node.id);
    }
  }

  std::vector<Unit> fuse() {
    // Later nodes first: of two batch norms that one addition joins, the later one takes it.
    if (folds_) start_all<Convolution>();
    start_all<BatchNorm>();
    for (const Node& node : graph_.nodes) {
      if (!node.inputs.empty() && !taken_[static_cast<size_t>(node.id)]) start(node);
    }
    std::sort(units_.begin(), units_.end(), [](const Unit& a, const Unit& b) { return a.tail() < b.tail(); });
    return std::move(units_);
  }

 private:
  template <typename Operation>
  void start_all() {
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      if (std::holds_alternative<Operation>(node->op) && !taken_[static_cast<size_t>(node->id)]) start(*node);
    }
  }

  void start(const Node& node) {
    Unit unit{.nodes = {node.id}};
    const bool folds = folds_ && std::holds_alternative<Convolution>(node.op);
    if (folds) take_norm(unit);
    if (allowed_.layer_scale && std::holds_alternative<LayerScale>(node.op)) {
      take_depth(unit);
      take_addition(unit);
    }
    if (folds || std::holds_alternative<BatchNorm>(node.op)) {
      if (allowed_.norm_addition) take_addition(unit);
      if (allowed_.norm_activation) take_activation(unit, unit.add < 0);
    } else if (std::holds_alternative<Convolution>(node.op)) {
      if (allowed_.convolution_activation) take_activation(unit, false);
    } else if (is_map_sum(node) && allowed_.sum_activation) {
      take_activation(unit, false);
    }
    for (int id : unit.nodes) taken_[static_cast<size_t>(id)] = true;
    units_.push_back(std::move(unit));
  }

  void take_norm(Unit& unit) const {
    const Node* next = only_user(unit.tail());
    if (next == nullptr || !std::holds_alternative<BatchNorm>(next->op)) return;
    unit.norm = next->id;
    unit.nodes.push_back(next->id);
  }

  void take_depth(Unit& unit) const {
    const Node* next = only_user(unit.tail());
    if (next == nullptr || !std::holds_alternative<StochasticDepth>(next->op)) return;
    unit.depth = next->id;
    unit.nodes.push_back(next->id);
  }

  void take_addition(Unit& unit) const {
    const Node* next = only_user(unit.tail());
    if (next == nullptr || !std::holds_alternative<Add>(next->op) || next->inputs.size() != 2) return;
    unit.add = next->id;
    unit.residual = next->inputs[0] == unit.tail() ? next->inputs[1] : next->inputs[0];
    unit.nodes.push_back(next->id);
  }

  void take_activation(Unit& unit, bool any) const {
    const Node* next = only_user(unit.tail());
    if (next == nullptr) return;
    const auto* activation = std::get_if<Activation>(&next->op);
    if (activation == nullptr || (!any && activation->function != Activation::Function::kRelu)) return;
    unit.activation = next->id;
    unit.nodes.push_back(next->id);
  }

  // The node that alone uses the output of `id`, once, if it is free and gets the output as it was computed.
  const Node* only_user(int id) const {
    const std::vector<int>& users = users_[static_cast<size_t>(id)];
    if (graph_.is_output(id) || rounded_[static_cast<size_t>(id)] || users.size() != 1 ||
        taken_[static_cast<size_t>(users[0])])
      return nullptr;
    return &graph_.nodes[static_cast<size_t>(users[0])];
  }

  static bool is_map_sum(const Node& node) { return std::holds_alternative<Add>(node.op) && node.shape.size() == 3; }

  const Graph& graph_;
  const bool folds_;
  const Fusions allowed_;
  std::vector<std::vector<int>> users_;
  std::vector<bool> taken_;
  std::vector<bool> rounded_;  // to 8 bits
  std::vector<Unit> units_;
};

}  // namespace

std::vector<Unit> fuse(const Graph& graph, bool frozen, const Fusions& allowed, const Quantization* quantization) {
  return Fuser(graph, frozen, allowed, quantization).fuse();
}

}  // namespace trainyard::nn
