// The options of optimizers: numbers of their formulas, the parameters that they update, regularization.
//
//   OptimizerOptions options{.numbers = {{"momentum", 0.8}, {"nesterov", true}}, .weight_decay = 1e-4};
//
// Each optimizer declares the numbers of its formula, with defaults and ranges, next to the formula: see
// optimizer_formulas() (formula_optimizer.h). The other members apply to all optimizers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/optimizers/norm_clip.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// Numbers of a formula by name: "momentum", "beta1", ... A switch is 1 or 0.
using OptimizerNumbers = std::map<std::string, double, std::less<>>;

enum class NumberRange {
  kUnit,      // [0, 1]
  kBelowOne,  // [0, 1)
  kPositive,  // finite and above 0
  kSwitch,    // 1 or 0
};

// Declares a number of an optimizer.
struct OptimizerNumber {
  std::string name{};
  double default_value = 0;
  NumberRange range = NumberRange::kUnit;
  bool changes = true;      // may change between steps: a hyperparameter
  std::string flag{};       // flag that sets it on the command line; empty: none
  std::string flag_help{};  // says what the flag means, and declares it; empty: flags.cpp does
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

struct OptimizerOptions {
  OptimizerNumbers numbers{};    // numbers of the formula; others have its defaults
  double weight_decay = 0.0;     // coefficient of sum(w^2) / 2 in the loss,
  bool decoupled_decay = false;  // or of w in the update, when the loss does not include it: w -= lr * weight_decay * w
  std::optional<double> gradient_clip{};  // by value
  std::vector<ParameterGroup> groups{};   // the last one that matches a parameter applies to it
  // Patterns of the parameters that it updates; empty: all. Others have no slots and are not changed.
  std::vector<std::string> parameters{};
  std::vector<RegularizationTerm>
      regularization{};                 // in addition to weight_decay; several terms of a parameter are added
  std::optional<NormClip> norm_clip{};  // applied before gradient_clip
  // Applies the complete gradients of the previous update; the first update applies zeros (Langford et al., "Slow
  // learners are fast", 2009, with a delay of one). They are the slot "delayed_gradient". A skipped update does not
  // change them.
  bool delayed = false;
  // Throws kInvalidArgument. `numbers` are checked by the optimizer, which knows their ranges.
  void validate() const;
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
