#include "trainyard/recipes/train_ctl/ctl_model.h"

#include <algorithm>
#include <set>
#include <variant>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::recipes {
namespace {

// Returns c where the terms are just Keras' l2(c) of the parameters that weight decay is for, once each; else 0.
double common_l2(const CtlModel& model) {
  if (model.regularization.empty()) return 0;
  const double c = model.regularization.front().coefficient;
  std::multiset<std::string> named, decayed;
  for (const optim::RegularizationTerm& term : model.regularization) {
    if (term.kind != optim::RegularizationKind::kL2 || term.coefficient != c) return 0;
    named.insert(term.pattern);
  }
  for (const nn::Node& node : model.graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) {
      if (parameter.decay) decayed.insert(parameter.name);
    }
  }
  return named == decayed ? c : 0;
}

}  // namespace

std::vector<optim::RegularizationTerm> keras_l2(const nn::Graph& graph, double coefficient) {
  std::vector<optim::RegularizationTerm> terms;
  for (const nn::Node& node : graph.nodes) {
    const bool dense = std::holds_alternative<nn::Linear>(node.op);
    if (!dense && !std::holds_alternative<nn::Convolution>(node.op)) continue;
    for (const nn::ParameterSpec& parameter : node.parameters) {
      if (!dense && parameter.shape.size() == 1) continue;  // a convolution's bias
      terms.push_back({.name = parameter.name + "/l2", .pattern = parameter.name, .coefficient = coefficient});
    }
  }
  return terms;
}

CtlModelFunction ctl_zoo_model(const std::string& name, nn::Size2d image_size) {
  const std::string full = name == "resnet50" || name == "trivial" ? "dali/" + name : name;
  return [full, image_size](int64_t num_classes, int64_t) {
    CtlModel model{.graph =
                       models::build_model(full, "imagenet", {.num_classes = num_classes, .image_size = image_size})};
    model.graph.name = full;
    model.regularization = keras_l2(model.graph);
    return model;
  };
}

optim::OptimizerOptions keras_sgd_options(const CtlModel& model, double momentum) {
  optim::OptimizerOptions options{.momentum = momentum};
  // The same numbers, in a form that optimizers on every device have.
  if (const double c = common_l2(model); c > 0) {
    options.weight_decay = 2 * c;
  } else {
    options.regularization = model.regularization;
  }
  return options;
}

}  // namespace trainyard::recipes
