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

}  // namespace trainyard::optim
