#include <set>
#include <string>
#include <variant>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

namespace trainyard::optim {
namespace {

// Returns c where the terms are just Keras' l2(c) of the parameters that weight decay is for, once each; else 0.
double common_l2(const std::vector<RegularizationTerm>& terms, const nn::Graph& graph) {
  if (terms.empty()) return 0;
  const double c = terms.front().coefficient;
  std::multiset<std::string> named, decayed;
  for (const RegularizationTerm& term : terms) {
    if (term.kind != RegularizationKind::kL2 || term.coefficient != c) return 0;
    named.insert(term.pattern);
  }
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) {
      if (parameter.decay) decayed.insert(parameter.name);
    }
  }
  return named == decayed ? c : 0;
}

}  // namespace

std::vector<RegularizationTerm> keras_l2(const nn::Graph& graph, double coefficient) {
  std::vector<RegularizationTerm> terms;
  for (const nn::Node& node : graph.nodes) {
    const bool linear = std::holds_alternative<nn::Linear>(node.op);
    if (!linear && !std::holds_alternative<nn::Convolution>(node.op)) continue;
    for (const nn::ParameterSpec& parameter : node.parameters) {
      if (!linear && parameter.shape.size() == 1) continue;  // a convolution's bias
      terms.push_back({.name = parameter.name + "/l2", .pattern = parameter.name, .coefficient = coefficient});
    }
  }
  return terms;
}

void set_regularization(const std::vector<RegularizationTerm>& terms, const nn::Graph& graph,
                        OptimizerOptions& options) {
  const double c = common_l2(terms, graph);
  options.weight_decay = 2 * c;  // of sum(w^2) / 2
  options.regularization = c > 0 ? std::vector<RegularizationTerm>() : terms;
}

}  // namespace trainyard::optim
