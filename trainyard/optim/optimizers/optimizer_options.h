// The options of optimizers, and optimizers as values: numbers of their formulas, the parameters that they update,
// regularization, clipping by norm.
//
//   options.make_optimizer = optim::momentum({.momentum = 0.9, .weight_decay = 1e-4});
//   options.make_optimizer = optim::adamw({.groups = {{.pattern = "body.*", .rate_factor = 0.1}}});
//   options.make_optimizer = optim::OptimizerChoice{"torch_nadam", {.numbers = {{"beta1", 0.95}}}};
//
// Each optimizer declares the numbers of its formula, with defaults and ranges, next to the formula: see
// optimizer_formulas() (formula_optimizer.h). The other members of OptimizerOptions apply to all optimizers.
// optimizer.h lists all names, and says how an update uses the options.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {
struct Graph;
class ParameterSet;
}  // namespace trainyard::nn

namespace trainyard::optim {

// Clipping of gradients by their norm.
//
//   kParameter  each parameter's gradient by its own norm (Keras' clipnorm, tf.clip_by_norm)
//   kGlobal     all gradients by the norm of all of them together (Pascanu, Mikolov, Bengio, "On the difficulty of
//               training recurrent neural networks", 2013: Keras' global_clipnorm, tf.clip_by_global_norm, PyTorch's
//               clip_grad_norm_)
//   kAdaptive   each unit's gradient by the norm of its weights (Brock, De, Smith, Simonyan, "High-performance
//               large-scale image recognition without normalization", 2021, section 4). A unit is what one index of a
//               parameter's first dimension names: the weights of one output of a convolution or a linear layer. A
//               parameter of one dimension is one unit.
//
// Clips the reduced gradients of an optimizer's trainable parameters, without the loss scale. The frameworks differ in
// two things, which the rule selects:
//
//   kTensorFlow  gradients of the whole loss, in which coupled weight decay and other regularization are terms, as in
//                tf_cnn_benchmarks and Keras: factor = c / max(norm, c). A global norm that is not finite makes all
//                gradients NaN.
//   kPyTorch     gradients of the data's loss alone; the optimizer adds the regularization afterwards, as after
//                torch.nn.utils.clip_grad_norm_: factor = min(1, c / (norm + 1e-6))
//
// With kAdaptive both rules have the factor of the paper's code, c * max(|w|, 1e-3) / max(|g|, 1e-6) where |g| is above
// c * max(|w|, 1e-3), else 1. They differ in the gradient alone; the paper's is kPyTorch's. Decoupled weight decay is
// clipped by neither.
enum class NormClipKind { kParameter, kGlobal, kAdaptive };
enum class NormClipRule { kTensorFlow, kPyTorch };

struct NormClip {
  NormClipKind kind = NormClipKind::kGlobal;
  double bound = 1.0;  // c: the largest norm; of kAdaptive the largest ratio of the norms, lambda in the paper
  NormClipRule rule = NormClipRule::kTensorFlow;
  // Patterns of parameters that are not clipped and whose gradients do not count in the global norm. The paper of
  // kAdaptive excludes the last linear layer.
  std::vector<std::string> excluded{};
  void validate() const;  // throws kInvalidArgument
};

// Numbers of a formula by name: "momentum", "beta1", ... A switch is 1 or 0.
using OptimizerNumbers = std::map<std::string, double, std::less<>>;

enum class NumberRange {
  kUnit,      // [0, 1]
  kBelowOne,  // [0, 1)
  kOpenUnit,  // (0, 1)
  kPositive,  // finite and above 0
  kSwitch,    // 1 or 0
  kCount,     // a whole number from 1 to 99
  kChoice,    // a whole number: the index of one of OptimizerNumber::choices
};

// Declares a number of an optimizer.
struct OptimizerNumber {
  std::string name{};
  double default_value = 0;
  NumberRange range = NumberRange::kUnit;
  bool changes = true;                 // may change between steps: a hyperparameter
  std::string flag{};                  // flag that sets it on the command line; empty: none
  std::string flag_help{};             // says what the flag means, and declares it; empty: flags.cpp does
  std::vector<std::string> choices{};  // words of the flag of a kChoice
};

// Returns all declared numbers: the values of `given`, and the defaults of the others. Throws kNotFound for a number
// that is not declared, kInvalidArgument for one out of its range.
[[nodiscard]] OptimizerNumbers complete_numbers(const std::vector<OptimizerNumber>& declared,
                                                const OptimizerNumbers& given);

// Parameters that are updated differently. Patterns are those of core::matches_pattern: "*" matches any characters,
// "layer1.*".
struct ParameterGroup {
  std::string pattern{};
  double rate_factor = 1.0;  // factor of the learning rate; with 0 neither the update nor its decay changes values
  std::optional<double> weight_decay{};  // replaces OptimizerOptions::weight_decay for the parameters of this group
};

enum class RegularizationKind {
  kL2,      // c * sum w^2, as Keras writes it
  kL2Half,  // c * sum w^2 / 2, as weight decay is
  kL1,      // c * sum |w|, whose gradient at 0 is taken as 0
};

// A term of the loss that depends on parameters alone. Optimizers add its gradient in their pass over the parameters.
struct RegularizationTerm {
  std::string name{};     // name in reports; "weight_decay" is reserved for OptimizerOptions'
  std::string pattern{};  // pattern of the parameters, whether their spec decays or not
  RegularizationKind kind = RegularizationKind::kL2;
  double coefficient = 0.0;  // c
};

// Lookahead (Zhang, Lucas, Hinton and Ba, "Lookahead Optimizer: k steps forward, 1 step back", 2019) around any
// optimizer: after each `steps` updates the slow weights s move towards the weights, s += alpha (w - s), and w = s.
// They are the slot "slow"; the optimizer's own slots stay. A skipped update does not count. Between these updates the
// weights that are evaluated and saved are w.
//
// With `final_alpha`, alpha changes over the `updates` of a training, slowly at first: of update n it is
// alpha + (final_alpha - alpha) (n / updates)^3, and the last step, updates - 1 by StepValues::step, sets w = s whether
// a move is due or not, and also where its update is skipped. This is the average of airbench96 (Jordan, "94% on
// CIFAR-10 in 3.29 seconds on a single GPU", 2024), whose decay is 1 - alpha.
struct Lookahead {
  int64_t steps = 5;
  double alpha = 0.5;
  std::optional<double> final_alpha{};  // of the last update; empty: alpha stays
  int64_t updates = 0;                  // of the whole training; read with final_alpha alone
  void validate() const;                // throws kInvalidArgument
  // Returns alpha of an update, whose number counts from 1; those after `updates` have final_alpha.
  [[nodiscard]] double alpha_at(int64_t update) const;
};

struct OptimizerOptions {
  OptimizerNumbers numbers{};    // numbers of the formula; others have its defaults
  double weight_decay = 0.0;     // coefficient of sum(w^2) / 2 in the loss,
  bool decoupled_decay = false;  // or of w in the update, when the loss does not include it: w -= lr * weight_decay * w
  std::optional<double> gradient_clip{};  // by value
  std::vector<ParameterGroup> groups{};   // the last one that matches a parameter applies to it
  // Above 0, at most 1: the learning rate of each group of layers is that of the next one towards the output times
  // this, and times the rate factor of a parameter's group. 1: none. layer_rate_factors() (layer_decay.h) has the
  // groups.
  double layer_decay = 1.0;
  // Patterns of the parameters that it updates; empty: all. Others have no slots and are not changed.
  std::vector<std::string> parameters{};
  std::vector<RegularizationTerm>
      regularization{};                 // in addition to weight_decay; several terms of a parameter are added
  std::optional<NormClip> norm_clip{};  // applied before gradient_clip
  // Applies the complete gradients of the previous update; the first update applies zeros (Langford et al., "Slow
  // learners are fast", 2009, with a delay of one). They are the slot "delayed_gradient". A skipped update does not
  // change them.
  bool delayed = false;
  // Patterns of parameters, or of their layers, that muon_sgd and muon_adamw update as they do vectors: "head",
  // "*.bias". Others have none.
  std::vector<std::string> muon_exclude{};
  std::optional<Lookahead> lookahead{};
  // Throws kInvalidArgument. `numbers` are checked by the optimizer, which knows their ranges.
  void validate() const;
};

// Sharpness-aware minimization (Foret, Kleiner, Mobahi and Neyshabur, "Sharpness-Aware Minimization for Efficiently
// Improving Generalization", 2021, algorithm 1 with p = 2) around any optimizer: the gradient that it applies at w is
// that at w + rho g / |g|, where g is the gradient at w, of the whole loss, regularization included.
struct SharpnessAwareOptions {
  double rho = 0.05;      // radius of the perturbation; 0: none
  void validate() const;  // throws kInvalidArgument
};

// Regularization as layers have it in Keras: terms that are attached to the parameters of single layers.
//
//   optim::OptimizerOptions options{.numbers = {{"momentum", 0.9}}};
//   optim::set_regularization(optim::keras_l2(graph, 1e-4), graph, options);

// Returns Keras' l2(coefficient), coefficient * sum(w^2), on the kernel of each convolution and on the kernel and the
// bias of each linear layer, as kernel_regularizer and bias_regularizer of TensorFlow's official ResNets attach it.
[[nodiscard]] std::vector<RegularizationTerm> keras_l2(const nn::Graph& graph, double coefficient);

// Replaces the regularization of the options by `terms`. When they are a single l2 of exactly the parameters with
// weight decay, sets weight_decay instead, which all devices support; the results are the same.
void set_regularization(const std::vector<RegularizationTerm>& terms, const nn::Graph& graph,
                        OptimizerOptions& options);

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
//   weight_decay   coefficient of sum(w^2) / 2 in the loss; that of w in the update where optimizer.h says so
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

// What torch.optim.Muon's adjust_lr_fn multiplies the learning rate of a matrix by.
enum class MuonRate {
  kNone,               // 1
  kOriginal,           // sqrt(max(1, rows / columns))
  kMatchRmsAdamw,      // 0.2 sqrt(max(rows, columns))
  kSpectralUnclamped,  // sqrt(rows / columns)
};

// Muon's matrices (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): parameters of two
// and more dimensions, as [first dimension, all others]. Others, and those that `exclude` names, are updated by
// PyTorch's SGD with Nesterov's momentum (muon_sgd) or by its AdamW (muon_adamw). The weight decay of matrices is
// decoupled.
struct MuonOptions {
  double muon_momentum = 0.95;
  int steps = 5;  // Newton-Schulz iterations, 1 to 99
  MuonRate rate = MuonRate::kOriginal;
  bool normalize_weights = false;      // makes the norm of each matrix sqrt(rows) before the update, as airbench does
  std::vector<std::string> exclude{};  // OptimizerOptions::muon_exclude; the layer of the output belongs there
  double momentum = 0.9;               // of muon_sgd's other parameters
  double beta1 = 0.9, beta2 = 0.999;   // of muon_adamw's
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice muon_sgd(const MuonOptions& options = {});
OptimizerChoice muon_adamw(const MuonOptions& options = {});

// Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023; weight decay is in the update.
struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice lion(const LionOptions& options = {});

// Defazio et al., "The Road Less Scheduled", 2024. A trainer evaluates, saves and exports Optimizer::result()
// instead of the weights. schedule_free_sgd reads `beta` alone.
struct ScheduleFreeOptions {
  double beta = 0.9;  // between the steps' point and their mean, where gradients are taken
  double beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
  std::vector<std::string> parameters{};
  std::optional<NormClip> norm_clip = std::nullopt;
};
OptimizerChoice schedule_free_sgd(const ScheduleFreeOptions& options = {});
OptimizerChoice schedule_free_adamw(const ScheduleFreeOptions& options = {});

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
