// What optimizers are told: numbers of their formulas, which parameters they update, regularization.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/optimizers/norm_clip.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

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
  double momentum = 0.9;             // of the momentum, rmsprop and lars optimizers
  double dampening = 0.0;            // of torch_momentum: what the velocity does not take of later gradients
  bool nesterov = false;             // of torch_momentum and keras_momentum
  double mean_square_decay = 0.9;    // of the rmsprop optimizers: decay of the mean of the gradients' squares
  bool centered = false;             // of the rmsprop optimizers: the variance in the place of the mean square
  double beta1 = 0.9;                // of the adam optimizers and lamb: decay of the mean of gradients,
  double beta2 = 0.999;              // and of the mean of their squares
  double epsilon = 1e-7;             // what adam, rmsprop and lamb add to a root. The originals' defaults differ
  double trust_coefficient = 0.001;  // of lars: eta
  bool bias_correction = true;       // of lamb
  bool adapt_undecayed = false;      // of lars and lamb: whether parameters that do not decay have a rate of their own
  double weight_decay = 0.0;         // coefficient of sum(w^2) / 2 in the loss,
  bool decoupled_decay = false;      // or of w in the update, beside a loss without it: w -= lr * weight_decay * w
  std::optional<double> gradient_clip{};  // by value
  std::vector<ParameterGroup> groups{};   // the last one whose pattern names a parameter counts for it
  // Patterns of the parameters that it updates; empty: all. It leaves all others alone and keeps no slots for them.
  std::vector<std::string> parameters{};
  std::vector<RegularizationTerm> regularization{};  // beside weight_decay; terms add up where several name a parameter
  std::optional<NormClip> norm_clip{};               // before gradient_clip
  // Applies the complete gradients of the update before; the first update, zeros (Langford et al., "Slow learners are
  // fast", 2009, with a delay of one). They are the slot "delayed_gradient". A skipped update leaves them as they are.
  bool delayed = false;
  void validate() const;  // throws kInvalidArgument
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
