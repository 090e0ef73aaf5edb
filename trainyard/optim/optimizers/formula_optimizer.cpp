#include "trainyard/optim/optimizers/formula_optimizer.h"

#include <memory>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/host_update.h"

namespace trainyard::optim {
namespace {

class OneFormula : public DeclaredOptimizer {
 public:
  OneFormula(nn::ParameterSet& parameters, const OptimizerOptions& options, const FormulaOptimizer& declared)
      : DeclaredOptimizer(parameters, options, declared) {
    if (!options.muon_exclude.empty()) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "this optimizer has no matrices of muon",
                                                            .where = declared.name,
                                                            .remedy = "leave OptimizerOptions::muon_exclude empty"});
    }
    const AnyFormula formula = declared.make(this->options().numbers);
    for (size_t s = 0; s < slots_of(formula); ++s) add_slot(declared.slots[s].name, declared.slots[s].initial);
    if (counts_updates(formula)) count_updates({0, 1}, declared.counts_by_parameter);
  }

  std::string part_obstacle() const override {
    if (device() != nullptr) return "parameters are on a device";
    if (scaled_by_norms(declared().make(options().numbers))) return "its updates are scaled by norms of parameters";
    if (options().norm_clip) return "gradients are clipped by norm";
    if (options().lookahead) return "Lookahead moves its weights after some updates";
    if (options().delayed) return "gradients are applied one update later";
    return "";
  }

 private:
  void update(const StepState& state, const at::Tensor& gradients) override {
    flat_update(*this, state, gradients, declared().make(options().numbers));
  }
  void update_own_part(const StepState& state, const PartSteps& steps) override {
    update_part_on_host(*this, state, steps, declared().make(options().numbers));
  }
};

}  // namespace

Optimizer::DecayForm FormulaOptimizer::decay_form(const OptimizerOptions& options) const {
  switch (decay) {
    case Decay::kByOptions:
      return options.decoupled_decay ? Optimizer::DecayForm::kDecoupled : Optimizer::DecayForm::kCoupled;
    case Decay::kDecoupled:
      return Optimizer::DecayForm::kDecoupled;
    case Decay::kInUpdate:
      return Optimizer::DecayForm::kInUpdate;
  }
  return Optimizer::DecayForm::kCoupled;
}

std::string declared_name(const Optimizer& optimizer) {
  const auto* const declared = dynamic_cast<const DeclaredOptimizer*>(&optimizer);
  return declared == nullptr ? "" : declared->declared().name;
}

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
  optimizers().add(
      declared.name,
      [&kept](nn::ParameterSet& parameters, const OptimizerOptions& options) -> std::unique_ptr<Optimizer> {
        if (kept.construct) return kept.construct(parameters, options, kept);
        return std::make_unique<OneFormula>(parameters, options, kept);
      });
}

}  // namespace trainyard::optim
