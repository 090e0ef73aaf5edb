#include "trainyard/train/step/step_hyperparameters.h"

#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {

StepHyperparameters::StepHyperparameters(ReplicaSet& replicas, const optim::Hyperparameters& hyperparameters)
    : replicas_(replicas),
      hyperparameters_(hyperparameters),
      costs_(replicas.options().all_costs()),
      learning_rates_(costs_.size()) {}

bool StepHyperparameters::apply_hyperparameters() {
  bool changed = false;
  for (size_t c = 0; c < costs_.size(); ++c) {
    const auto value_of = [&](const std::string& name) {
      return hyperparameters_.get(replicas_.options().hyperparameter_name(costs_[c], name));
    };
    learning_rates_[c] = value_of("learning_rate");
    for (int r = 0; r < replicas_.size(); ++r) {
      optim::Optimizer* const optimizer = replicas_.update().optimizer(r, static_cast<int>(c));
      if (optimizer == nullptr) continue;
      for (const std::string& name : optimizer->hyperparameter_names()) {
        if (optimizer->hyperparameter(name) == value_of(name)) continue;
        optimizer->set_hyperparameter(name, value_of(name));
        changed = true;
      }
    }
  }
  require_trainable();
  return changed;
}

void StepHyperparameters::require_trainable() const {
  const nn::ParameterSet& set = replicas_.update().parameters(0);
  if (set.all_trainable()) return;
  for (size_t c = 0; c < costs_.size(); ++c) {
    const optim::Optimizer& optimizer = *replicas_.update().optimizer(0, static_cast<int>(c));
    bool any = false;
    for (size_t i = 0; i < set.segments().size(); ++i) any |= optimizer.trainable(i);
    if (any) continue;
    const std::string which = costs_[c].loss.empty() ? "" : fmt::format(" for the cost '{}'", costs_[c].loss);
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("there is nothing to train{}: all parameters are frozen", which),
                       .remedy = "thaw some, or evaluate the model instead"});
  }
}

}  // namespace trainyard::train
