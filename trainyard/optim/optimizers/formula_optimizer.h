// Optimizers that are one formula of formulas.h: how each is declared, and the list of them with formulas and sources,
// which `trainyard help` prints.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainyard/core/base/registry.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/any_formula.h"

namespace trainyard::optim {

// An optimizer, declared:
//
//   const FormulaRegistration kNesterov({
//       .name = "nesterov",
//       .formula = "v = m * v + g;  w -= lr * (g + m * v)",
//       .source = "TensorFlow 1's MomentumOptimizer with use_nesterov",
//       .slots = {{.name = "momentum"}},
//       .hyperparameters = {"momentum"},
//       .make = [](const OptimizerOptions& options) { return MomentumFormula<true>{.momentum = options.momentum}; },
//   });
struct FormulaOptimizer {
  struct Slot {
    std::string name;
    double initial = 0.0;
  };
  std::string name;
  std::string formula;                         // as people read it; lines are separated by "\n"
  std::string source;                          // the paper or the program whose updates these are
  std::vector<Slot> slots{};                   // in the formula's order; a formula with fewer takes the first ones
  std::vector<std::string> hyperparameters{};  // beside "weight_decay"
  std::function<AnyFormula(const OptimizerOptions&)> make;  // called for each update: the options may have changed
  enum class Decay { kByOptions, kDecoupled, kInUpdate } decay = Decay::kByOptions;  // Optimizer::DecayForm
};

// Adds it to optimizers() and to optimizer_formulas() under its name.
class FormulaRegistration {
 public:
  explicit FormulaRegistration(const FormulaOptimizer& declared);
};

// By name. Entries live as long as the program.
core::Registry<FormulaOptimizer>& optimizer_formulas();

}  // namespace trainyard::optim
