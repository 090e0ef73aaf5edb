#include <utility>

#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

namespace trainyard::optim {
namespace {

// The choice with the numbers that all structs have.
template <typename Options>
OptimizerChoice choice(std::string name, const Options& options) {
  OptimizerChoice chosen{.name = std::move(name)};
  chosen.options.weight_decay = options.weight_decay;
  chosen.options.groups = options.groups;
  chosen.options.parameters = options.parameters;
  chosen.options.norm_clip = options.norm_clip;
  return chosen;
}

template <typename Options>
OptimizerChoice adaptive_choice(std::string name, const Options& options) {
  OptimizerChoice chosen = choice(std::move(name), options);
  chosen.options.numbers["beta1"] = options.beta1;
  chosen.options.numbers["beta2"] = options.beta2;
  chosen.options.numbers["epsilon"] = options.epsilon;
  return chosen;
}

OptimizerChoice muon_choice(std::string name, const MuonOptions& options) {
  OptimizerChoice chosen = choice(std::move(name), options);
  chosen.options.numbers["muon_momentum"] = options.muon_momentum;
  chosen.options.numbers["muon_steps"] = options.steps;
  chosen.options.numbers["muon_rate"] = static_cast<double>(options.rate);
  chosen.options.numbers["normalize_weights"] = options.normalize_weights ? 1 : 0;
  chosen.options.muon_exclude = options.exclude;
  return chosen;
}

}  // namespace

std::unique_ptr<Optimizer> OptimizerChoice::operator()(nn::ParameterSet& parameters) const {
  return optimizers().get(name)(parameters, options);
}

OptimizerChoice sgd(const SgdOptions& options) {
  return choice("sgd", options);
}

OptimizerChoice momentum(const MomentumOptions& options) {
  OptimizerChoice chosen = choice("torch_momentum", options);
  chosen.options.numbers["momentum"] = options.momentum;
  chosen.options.numbers["nesterov"] = options.nesterov ? 1 : 0;
  return chosen;
}

OptimizerChoice rmsprop(const RmspropOptions& options) {
  OptimizerChoice chosen = choice("torch_rmsprop", options);
  chosen.options.numbers["mean_square_decay"] = options.mean_square_decay;
  chosen.options.numbers["momentum"] = options.momentum;
  chosen.options.numbers["epsilon"] = options.epsilon;
  chosen.options.numbers["centered"] = options.centered ? 1 : 0;
  return chosen;
}

OptimizerChoice adam(const AdamOptions& options) {
  return adaptive_choice("torch_adam", options);
}

OptimizerChoice adamw(const AdamOptions& options) {
  return adaptive_choice("torch_adamw", options);
}

OptimizerChoice lars(const LarsOptions& options) {
  OptimizerChoice chosen = choice("lars", options);
  chosen.options.numbers["momentum"] = options.momentum;
  chosen.options.numbers["trust_coefficient"] = options.trust_coefficient;
  return chosen;
}

OptimizerChoice lamb(const LambOptions& options) {
  OptimizerChoice chosen = adaptive_choice("lamb", options);
  chosen.options.numbers["bias_correction"] = options.bias_correction ? 1 : 0;
  return chosen;
}

OptimizerChoice muon_sgd(const MuonOptions& options) {
  OptimizerChoice chosen = muon_choice("muon_sgd", options);
  chosen.options.numbers["momentum"] = options.momentum;
  return chosen;
}

OptimizerChoice muon_adamw(const MuonOptions& options) {
  OptimizerChoice chosen = muon_choice("muon_adamw", options);
  chosen.options.numbers["beta1"] = options.beta1;
  chosen.options.numbers["beta2"] = options.beta2;
  chosen.options.numbers["epsilon"] = options.epsilon;
  return chosen;
}

OptimizerChoice lion(const LionOptions& options) {
  OptimizerChoice chosen = choice("lion", options);
  chosen.options.numbers["beta1"] = options.beta1;
  chosen.options.numbers["beta2"] = options.beta2;
  return chosen;
}

OptimizerChoice schedule_free_sgd(const ScheduleFreeOptions& options) {
  OptimizerChoice chosen = choice("schedule_free_sgd", options);
  chosen.options.numbers["momentum"] = options.beta;
  return chosen;
}

OptimizerChoice schedule_free_adamw(const ScheduleFreeOptions& options) {
  OptimizerChoice chosen = choice("schedule_free_adamw", options);
  chosen.options.numbers["beta1"] = options.beta;
  chosen.options.numbers["beta2"] = options.beta2;
  chosen.options.numbers["epsilon"] = options.epsilon;
  return chosen;
}

}  // namespace trainyard::optim
