// Optimizers that are one formula of formulas/, or more: how each is declared, and the list of them with formulas and
// sources, which `trainyard help` prints.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/registry.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/any_formula.h"

namespace trainyard::optim {

// An optimizer, declared:
//
//   const FormulaRegistration kNesterov({
//       .name = "tf_nesterov",
//       .formula = "v = m * v + g;  w -= lr * (g + m * v)",
//       .source = "TensorFlow 1's MomentumOptimizer with use_nesterov",
//       .slots = {{.name = "momentum"}},
//       .numbers = {{.name = "momentum", .default_value = 0.9, .range = NumberRange::kUnit, .flag = "momentum"}},
//       .make = [](const OptimizerNumbers& n) { return MomentumFormula<true>{.momentum = n.at("momentum")}; },
//   });
struct FormulaOptimizer {
  struct Slot {
    std::string name;
    double initial = 0.0;
  };
  std::string name;
  std::string formula;                     // as text for users; lines are separated by "\n"
  std::string source;                      // the paper or program that defines the updates
  std::vector<Slot> slots{};               // in the formula's order; a formula with fewer takes the first ones
  std::vector<OptimizerNumber> numbers{};  // all that `make` reads
  std::function<AnyFormula(const OptimizerNumbers&)> make;  // called for each update: the numbers may have changed
  enum class Decay { kByOptions, kDecoupled, kInUpdate } decay = Decay::kByOptions;  // Optimizer::DecayForm
  // Counts the updates of each parameter, without those in which it was frozen, as PyTorch does. Else all count for all
  // parameters, as in TensorFlow and Keras. A formula that reads UpdateCount::momentum_product needs a
  // momentum_product() of its own for it.
  bool counts_by_parameter = false;
  // Makes an optimizer that is more than the formula; empty: one that is that formula alone. `declared` is the entry of
  // optimizer_formulas().
  std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&, const OptimizerOptions&,
                                           const FormulaOptimizer& declared)>
      construct{};
  // Returns the form of the weight decay with these options.
  [[nodiscard]] Optimizer::DecayForm decay_form(const OptimizerOptions& options) const;
};

// An optimizer that a FormulaOptimizer declares.
class DeclaredOptimizer : public Optimizer {
 public:
  const FormulaOptimizer& declared() const { return declared_; }

 protected:
  // `declared` is the entry of optimizer_formulas().
  DeclaredOptimizer(nn::ParameterSet& parameters, const OptimizerOptions& options, const FormulaOptimizer& declared)
      : Optimizer(parameters, options, declared.decay_form(options), declared.numbers), declared_(declared) {}

 private:
  const FormulaOptimizer& declared_;
};

// Returns the name of the declaration of an optimizer; empty for one that has none: a user's own class.
std::string declared_name(const Optimizer& optimizer);

// Return numbers that several families share, with the flags of tf_cnn_benchmarks that set them.
OptimizerNumber momentum_number();
std::vector<OptimizerNumber> mean_numbers(double epsilon = 1e-7);  // "beta1", "beta2" and "epsilon"
// Returns the switch that scales parameters without decay by norms, too.
OptimizerNumber adapt_undecayed_number();

// Adds an optimizer to optimizers() and to optimizer_formulas().
class FormulaRegistration {
 public:
  explicit FormulaRegistration(const FormulaOptimizer& declared);
};

// By name. Entries live as long as the program.
core::Registry<FormulaOptimizer>& optimizer_formulas();

}  // namespace trainyard::optim
