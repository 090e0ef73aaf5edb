#include "trainyard/nn/quantization/quantization_sites.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/graph/quantized_nodes.h"
#include "trainyard/nn/quantization/weights_of.h"

namespace trainyard::nn {
namespace {

template <typename... Operations>
bool is_one_of(const Op& op) {
  return (std::holds_alternative<Operations>(op) || ...);
}

std::string reason_of(const Op& op) {
  return std::visit(
      [](const auto& operation) -> std::string {
        using Operation = std::decay_t<decltype(operation)>;
        if constexpr (std::is_same_v<Operation, Attention>) return "attention: its softmax needs the range of floats";
        if constexpr (std::is_same_v<Operation, BatchNorm>) return "a batch norm that follows no convolution";
        if constexpr (std::is_same_v<Operation, LayerNorm> || std::is_same_v<Operation, L2Norm> ||
                      std::is_same_v<Operation, LocalResponseNorm>)
          return "a normalization: its statistics need the precision of floats";
        if constexpr (std::is_same_v<Operation, Multiply>) return "a product of two activations";
        if constexpr (std::is_same_v<Operation, Foreign>) return "a custom layer, which computes in float";
        if constexpr (std::is_same_v<Operation, TransposedConvolution>)
          return "transposed convolutions have no kernel in 8 bits";
        return "there is no kernel in 8 bits for this operation";
      },
      op);
}

class Sites {
 public:
  Sites(const Graph& graph, const std::map<int, std::string>& unavailable)
      : graph_(graph),
        unavailable_(unavailable),
        units_(fuse(graph, /*frozen=*/true)),
        unit_of_(graph.nodes.size(), -1) {
    for (size_t i = 0; i < units_.size(); ++i) {
      for (int node : units_[i].nodes) unit_of_[static_cast<size_t>(node)] = static_cast<int>(i);
    }
    readers_.resize(graph.nodes.size());
    for (const Unit& unit : units_) {
      for (int input : inputs_of(unit)) readers_[static_cast<size_t>(input)].push_back(&unit);
    }
  }

  QuantizationSites find() {
    integers_.assign(units_.size(), false);
    for (size_t i = 0; i < units_.size(); ++i) integers_[i] = could_be_integers(units_[i]);
    // Whether a connecting node is in 8 bits depends on those before and behind it: fewer and fewer are, until none
    // changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < units_.size(); ++i) {
        if (!integers_[i] || is_weighted(head(units_[i]).op) || connects_integers(units_[i])) continue;
        integers_[i] = false;
        changed = true;
      }
    }
    return result();
  }

 private:
  const Node& node(int id) const { return graph_.nodes[static_cast<size_t>(id)]; }
  const Node& head(const Unit& unit) const { return node(unit.head()); }
  bool is_integer(const Unit& unit) const { return integers_[static_cast<size_t>(&unit - units_.data())]; }

  // Returns whether the node scales the channels of its first input by its second (squeeze-and-excitation). The
  // factors are floats.
  bool scales_channels(const Node& one) const {
    return std::holds_alternative<Multiply>(one.op) && one.shape.size() == 3 && node(one.inputs[1]).shape.size() == 1;
  }

  // Returns whether there are kernels in 8 bits for the node, convolutions and linear layers apart.
  bool connects(const Node& one) const {
    return keeps_scale(one.op) || is_one_of<Activation, GlobalAveragePool, Add, Concat, Pool>(one.op) ||
           scales_channels(one);
  }

  // Returns the number of products in each of the layer's sums.
  static int64_t terms_of(const Node& layer) {
    int64_t terms = 1;
    const Shape& weight = layer.parameters.at(0).shape;
    for (size_t i = 1; i < weight.size(); ++i) terms *= weight[i];
    return terms;
  }

  // Returns the nodes outside the unit whose output it reads as integers, if it computes with integers.
  std::vector<int> inputs_of(const Unit& unit) const {
    if (scales_channels(head(unit))) return {head(unit).inputs[0]};
    std::vector<int> inputs;
    for (int id : unit.nodes) {
      for (int input : node(id).inputs) {
        if (std::find(unit.nodes.begin(), unit.nodes.end(), input) == unit.nodes.end()) inputs.push_back(input);
      }
    }
    return inputs;
  }

  bool could_be_integers(const Unit& unit) const {
    const Node& first = head(unit);
    if (is_weighted(first.op)) {
      return !unavailable_.contains(first.inputs[0]) && terms_of(first) <= kMostQuantizedTerms;
    }
    if (!connects(first) || unavailable_.contains(unit.tail())) return false;
    const std::vector<int> inputs = inputs_of(unit);
    if (std::any_of(inputs.begin(), inputs.end(), [&](int id) { return unavailable_.contains(id); })) return false;
    // The few values of a classifier's hidden layer are more exact when they are rounded once, behind the activation.
    return !std::holds_alternative<Activation>(first.op) || !std::holds_alternative<Linear>(node(first.inputs[0]).op);
  }

  bool connects_integers(const Unit& unit) const {
    if (!is_wanted(unit.tail())) return false;
    if (keeps_scale(head(unit).op)) return true;
    const std::vector<int> inputs = inputs_of(unit);
    return std::any_of(inputs.begin(), inputs.end(), [&](int id) { return makes_integers(id); });
  }

  // Returns whether the value is made by integers. The images are turned into integers anyway.
  bool makes_integers(int id) const {
    const int unit = unit_of_[static_cast<size_t>(id)];
    return unit < 0 || integers_[static_cast<size_t>(unit)];
  }

  // Returns whether something reads the value in 8 bits.
  bool is_wanted(int id) const {
    if (unavailable_.contains(id) || graph_.is_output(id)) return false;
    const std::vector<const Unit*>& readers = readers_[static_cast<size_t>(id)];
    return std::any_of(readers.begin(), readers.end(), [&](const Unit* unit) {
      if (!is_integer(*unit)) return false;
      const Node& first = head(*unit);
      if (!is_weighted(first.op) || first.inputs[0] == id) return true;
      return is_wanted(unit->tail());  // as what the layer adds
    });
  }

  QuantizationSites result() const {
    QuantizationSites sites;
    sites.layers.assign(graph_.nodes.size(), false);
    for (const Unit& unit : units_) {
      sites.layers[static_cast<size_t>(unit.head())] = is_weighted(head(unit).op) && is_integer(unit);
      if (!is_integer(unit)) explain(unit, sites);
    }
    sites.range_of = ranges();
    return sites;
  }

  void explain(const Unit& unit, QuantizationSites& sites) const {
    const Node& first = head(unit);
    std::string& reason = sites.in_float[first.name];
    if (!is_weighted(first.op) && !connects(first)) {
      reason = reason_of(first.op);
      return;
    }
    if (is_weighted(first.op) && terms_of(first) > kMostQuantizedTerms) {
      reason = "its sums are too long for 32 bits";
      return;
    }
    for (int input : inputs_of(unit)) {
      const auto why = unavailable_.find(input);
      if (why == unavailable_.end()) continue;
      reason = "its input '" + node(input).name + "' " + why->second;
      return;
    }
    reason = is_wanted(unit.tail()) ? "its inputs are in float" : "no layer reads its output in 8 bits";
  }

  std::vector<int> ranges() const {
    std::vector<int> range_of(graph_.nodes.size(), -1);
    for (const Node& one : graph_.nodes) {
      if (is_wanted(one.id)) range_of[static_cast<size_t>(one.id)] = one.id;
    }
    // Inputs of concatenations first, from the last one on, as it may be the input of another one.
    for (auto one = graph_.nodes.rbegin(); one != graph_.nodes.rend(); ++one) {
      const int range = range_of[static_cast<size_t>(one->id)];
      if (range < 0 || !std::holds_alternative<Concat>(one->op) || !makes_integers(one->id)) continue;
      for (int input : one->inputs) {
        const bool shared =
            readers_[static_cast<size_t>(input)].size() == 1 && !node(input).inputs.empty() && !moves(input);
        if (shared && range_of[static_cast<size_t>(input)] == input) range_of[static_cast<size_t>(input)] = range;
      }
    }
    for (const Node& one : graph_.nodes) {
      int& range = range_of[static_cast<size_t>(one.id)];
      if (range >= 0 && moves(one.id)) range = range_of[static_cast<size_t>(one.inputs[0])];
    }
    return range_of;
  }

  // Returns whether the node moves 8-bit values.
  bool moves(int id) const { return keeps_scale(node(id).op) && makes_integers(id) && !node(id).inputs.empty(); }

  const Graph& graph_;
  const std::map<int, std::string>& unavailable_;
  const std::vector<Unit> units_;
  std::vector<int> unit_of_;                       // by node id; -1: an input of the graph
  std::vector<std::vector<const Unit*>> readers_;  // by node id: units that read its output
  std::vector<bool> integers_;                     // by unit: it computes in 8 bits
};

}  // namespace

QuantizationSites find_sites(const Graph& graph, const std::map<int, std::string>& unavailable) {
  return Sites(graph, unavailable).find();
}

}  // namespace trainyard::nn
