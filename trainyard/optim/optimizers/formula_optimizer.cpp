#include "trainyard/optim/optimizers/formula_optimizer.h"

#include <memory>
#include <string>

#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/host_update.h"

namespace trainyard::optim {
namespace {

class OneFormula : public Optimizer {
 public:
  OneFormula(nn::ParameterSet& parameters, const OptimizerOptions& options, const FormulaOptimizer& declared)
      : Optimizer(parameters, options, decay_form_of(declared, options), declared.numbers), declared_(declared) {
    const AnyFormula formula = declared.make(this->options().numbers);
    for (size_t s = 0; s < slots_of(formula); ++s) add_slot(declared.slots[s].name, declared.slots[s].initial);
    if (counts_updates(formula)) count_updates();
  }

  std::string part_obstacle() const override {
    if (device() != nullptr) return "parameters are on a device";
    if (scaled_by_norms(declared_.make(options().numbers))) return "its updates are scaled by norms of parameters";
    if (options().norm_clip) return "gradients are clipped by norm";
    if (options().delayed) return "gradients are applied one update later";
    return "";
  }

 private:
  static DecayForm decay_form_of(const FormulaOptimizer& declared, const OptimizerOptions& options) {
    switch (declared.decay) {
      case FormulaOptimizer::Decay::kByOptions:
        return options.decoupled_decay ? DecayForm::kDecoupled : DecayForm::kCoupled;
      case FormulaOptimizer::Decay::kDecoupled:
        return DecayForm::kDecoupled;
      case FormulaOptimizer::Decay::kInUpdate:
        return DecayForm::kInUpdate;
    }
    return DecayForm::kCoupled;
  }

  void update(const StepState& state, const at::Tensor& gradients) override {
    flat_update(*this, state, gradients, declared_.make(options().numbers));
  }
  void update_own_part(const StepState& state, const PartSteps& steps) override {
    update_part_on_host(*this, state, steps, declared_.make(options().numbers));
  }

  const FormulaOptimizer& declared_;  // in the registry
};

}  // namespace

core::Registry<FormulaOptimizer>& optimizer_formulas() {
  static auto* registry = new core::Registry<FormulaOptimizer>("optimizer");
  return *registry;
}

OptimizerNumber momentum_number() {
  return {.name = "momentum", .default_value = 0.9, .flag = "momentum"};
}

std::vector<OptimizerNumber> mean_numbers(double epsilon) {
  return {{.name = "beta1", .default_value = 0.9, .range = NumberRange::kBelowOne, .flag = "adam_beta1"},
          {.name = "beta2", .default_value = 0.999, .range = NumberRange::kBelowOne, .flag = "adam_beta2"},
          {.name = "epsilon", .default_value = epsilon, .range = NumberRange::kPositive, .flag = "adam_epsilon"}};
}

OptimizerNumber adapt_undecayed_number() {
  return {.name = "adapt_undecayed", .range = NumberRange::kSwitch, .changes = false, .flag = "adapt_undecayed"};
}

FormulaRegistration::FormulaRegistration(const FormulaOptimizer& declared) {
  optimizer_formulas().add(declared.name, declared);
  const FormulaOptimizer& kept = optimizer_formulas().get(declared.name);
  optimizers().add(declared.name, [&kept](nn::ParameterSet& parameters, const OptimizerOptions& options) {
    return std::make_unique<OneFormula>(parameters, options, kept);
  });
}

}  // namespace trainyard::optim
