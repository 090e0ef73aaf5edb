#include "trainyard/optim/optimizers/optimizer_choice.h"

#include <utility>

#include "trainyard/optim/optimizers/optimizer.h"

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
  chosen.options.beta1 = options.beta1;
  chosen.options.beta2 = options.beta2;
  chosen.options.epsilon = options.epsilon;
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
  chosen.options.momentum = options.momentum;
  chosen.options.nesterov = options.nesterov;
  return chosen;
}

OptimizerChoice rmsprop(const RmspropOptions& options) {
  OptimizerChoice chosen = choice("torch_rmsprop", options);
  chosen.options.mean_square_decay = options.mean_square_decay;
  chosen.options.momentum = options.momentum;
  chosen.options.epsilon = options.epsilon;
  chosen.options.centered = options.centered;
  return chosen;
}

OptimizerChoice adam(const AdamOptions& options) {
  return adaptive_choice("torch_adam", options);
}

OptimizerChoice adamw(const AdamOptions& options) {
  return adaptive_choice("adamw", options);
}

OptimizerChoice lars(const LarsOptions& options) {
  OptimizerChoice chosen = choice("lars", options);
  chosen.options.momentum = options.momentum;
  chosen.options.trust_coefficient = options.trust_coefficient;
  return chosen;
}

OptimizerChoice lamb(const LambOptions& options) {
  OptimizerChoice chosen = adaptive_choice("lamb", options);
  chosen.options.bias_correction = options.bias_correction;
  return chosen;
}

}  // namespace trainyard::optim
