// What optimizers are told: numbers of their formulas, which parameters they update, regularization.
//
//   OptimizerOptions options{.numbers = {{"momentum", 0.8}, {"nesterov", true}}, .weight_decay = 1e-4};
//
// Each optimizer declares the numbers that its formula has, with defaults and ranges, beside the formula: see
// optimizer_formulas() (formula_optimizer.h). The other members are read for all optimizers.
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
  std::string flag{};       // sets it on the command line; empty: none does
  std::string flag_help{};  // says what the flag means, and declares it; empty: flags.cpp does
};

// Returns all declared numbers, with the values of `given` and the defaults of the others. Throws kNotFound for a
// number that is not declared, kInvalidArgument for one out of its range.
[[nodiscard]] OptimizerNumbers complete_numbers(const std::vector<OptimizerNumber>& declared,
                                                const OptimizerNumbers& given);

// Parameters that are updated in another way than the rest. Patterns of names are those of core::matches_pattern: "*"
// stands for any characters, "layer1.*".
struct ParameterGroup {
  std::string pattern{};
  double rate_factor = 1.0;              // times the learning rate; 0 leaves values as they are, with their decay
  std::optional<double> weight_decay{};  // in the place of OptimizerOptions', for all that the pattern names
};

enum class RegularizationKind {
  kL2,      // c * sum w^2, as Keras writes it
  kL2Half,  // c * sum w^2 / 2, as weight decay is
  kL1,      // c * sum |w|, whose gradient at 0 is taken as 0
};

// A term of the loss that depends on parameters alone. Optimizers add its gradient in their pass over the parameters.
struct RegularizationTerm {
  std::string name{};     // under which it is reported; "weight_decay" is OptimizerOptions'
  std::string pattern{};  // of the parameters, whether their spec decays or not
  RegularizationKind kind = RegularizationKind::kL2;
  double coefficient = 0.0;  // c
};

struct OptimizerOptions {
  OptimizerNumbers numbers{};             // of the formula; those that are not named have its defaults
  double weight_decay = 0.0;              // coefficient of sum(w^2) / 2 in the loss,
  bool decoupled_decay = false;           // or of w in the update, beside a loss without it: w -= lr * weight_decay * w
  std::optional<double> gradient_clip{};  // by value
  std::vector<ParameterGroup> groups{};   // the last one whose pattern names a parameter counts for it
  // Patterns of the parameters that it updates; empty: all. It leaves all others alone and keeps no slots for them.
  std::vector<std::string> parameters{};
  std::vector<RegularizationTerm> regularization{};  // beside weight_decay; terms add up where several name a parameter
  std::optional<NormClip> norm_clip{};               // before gradient_clip
  // Applies the complete gradients of the update before; the first update, zeros (Langford et al., "Slow learners are
  // fast", 2009, with a delay of one). They are the slot "delayed_gradient". A skipped update leaves them as they are.
  bool delayed = false;
  // Throws kInvalidArgument. `numbers` are checked by the optimizer, which knows their ranges.
  void validate() const;
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
