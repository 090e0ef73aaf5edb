// Selects optimizers as values: by a function with their own numbers, or by name with any numbers.
//
//   options.make_optimizer = optim::momentum({.momentum = 0.9, .weight_decay = 1e-4});
//   options.make_optimizer = optim::adamw({.groups = {{.pattern = "body.*", .rate_factor = 0.1}}});
//   options.make_optimizer = optim::OptimizerChoice{"torch_nadam", {.numbers = {{"beta1", 0.95}}}};
//
// optimizer.h lists all names. The functions select the forms of PyTorch's optimizers of these names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {
class ParameterSet;
}
namespace trainyard::optim {

class Optimizer;

// An optimizer that is not bound to parameters yet.
struct OptimizerChoice {
  std::string name = "tf_momentum";
  OptimizerOptions options{};

  // Makes the optimizer: a function for TowerTrainerOptions::make_optimizer. Throws kNotFound, with the nearest name,
  // for an unknown one, and as Optimizer's constructor does.
  std::unique_ptr<Optimizer> operator()(nn::ParameterSet& parameters) const;
};

// Each struct has the numbers of its optimizer, and these members of OptimizerOptions:
//
//   weight_decay   coefficient of sum(w^2) / 2 in the loss; of adamw and lamb that of w in the update
//   groups         parameters with another rate or decay
//   parameters     patterns of those that it updates; empty: all
//   norm_clip      clipping of gradients by their norm

// w -= rate * g.
struct SgdOptions {
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice sgd(const SgdOptions& options = {});

// Polyak's velocity v = momentum * v + g, w -= rate * v; with `nesterov` w -= rate * (g + momentum * v).
struct MomentumOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice momentum(const MomentumOptions& options = {});

// PyTorch's RMSprop; its `alpha` is mean_square_decay.
struct RmspropOptions {
  double mean_square_decay = 0.99;
  double momentum = 0;
  double epsilon = 1e-8;
  bool centered = false;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice rmsprop(const RmspropOptions& options = {});

// adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015) has weight decay in the loss. adamw
// (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) has it in the update.
struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice adam(const AdamOptions& options = {});
OptimizerChoice adamw(const AdamOptions& options = {});

// You et al., "Large batch training of convolutional networks", 2017.
struct LarsOptions {
  double momentum = 0.9;
  double trust_coefficient = 0.001;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice lars(const LarsOptions& options = {});

// You et al., "Large batch optimization for deep learning", 2020.
struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-6;
  bool bias_correction = true;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice lamb(const LambOptions& options = {});

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
