// Schedule-free SGD and AdamW (Defazio et al., "The Road Less Scheduled", 2024), as the package schedulefree computes
// them: the gradient is taken at y, the steps are those of z, and the result of the training is x, the weighted mean of
// z. The weights of the set are y; x = y + (1 - 1 / beta) (z - y) needs no memory of its own.
//
// A step's weight in the mean is the square of the largest learning rate so far (the package's defaults weight_lr_power
// = 2 and r = 0); a warm-up is the schedule's. Rates of groups only scale all weights of a parameter.
#include "trainyard/optim/formulas/schedule_free.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"
#include "trainyard/optim/optimizers/host_update.h"

namespace trainyard::optim {
namespace {

class ScheduleFree : public DeclaredOptimizer {
 public:
  ScheduleFree(nn::ParameterSet& parameters, const OptimizerOptions& options, const FormulaOptimizer& declared,
               std::string beta)
      : DeclaredOptimizer(parameters, options, declared), beta_(std::move(beta)) {
    require_host_memory("schedule-free optimizers");
    if (!options.muon_exclude.empty() || options.lookahead) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = options.lookahead ? "Lookahead does not work around a schedule-free optimizer"
                                                      : "this optimizer has no matrices of muon",
                         .where = declared.name,
                         .remedy = options.lookahead ? "leave OptimizerOptions::lookahead out"
                                                     : "leave OptimizerOptions::muon_exclude empty"});
    }
    for (const FormulaOptimizer::Slot& slot : declared.slots) add_slot(slot.name, slot.initial);
    count_updates({0, 0, 0});  // updates, the sum of their weights, the largest learning rate
  }

  std::string part_obstacle() const override { return "its steps are weighted by a sum over all of them"; }
  bool has_result() const override { return true; }
  void result(const at::Tensor& values) const override {
    if (update_count()[0].item<double>() == 0) return;  // z is not there yet: x is y
    const double beta = number(beta_);
    for (const nn::Segment& segment : own_segments()) {
      const auto part = [&segment](const at::Tensor& all) { return all.narrow(0, segment.offset, segment.count); };
      part(values).lerp_(part(slots()[0].values), 1 - 1 / beta);
    }
  }

 private:
  void update(const StepState& state, const at::Tensor& gradients) override {
    const StepValues values = state.read();
    if (values.found_inf) return;
    auto* const count = update_count().mutable_data_ptr<double>();
    if (count[0] == 0) slots()[0].values.copy_(parameters().values());
    count[0] += 1;
    count[2] = std::max(count[2], values.learning_rate);
    const double weight = count[2] * count[2];
    count[1] += weight;
    AnyFormula formula = declared().make(options().numbers);
    const double step_weight = count[1] > 0 ? weight / count[1] : 0;
    if (auto* const sgd = std::get_if<ScheduleFreeSgdFormula>(&formula)) {
      sgd->step_weight = step_weight;
    } else if (auto* const adamw = std::get_if<ScheduleFreeAdamwFormula>(&formula)) {
      adamw->step.step_weight = step_weight;
      adamw->root_factor = 1 / std::sqrt(1 - std::pow(adamw->beta2, count[0]));
    }
    update_on_host(*this, state, gradients, formula);
  }

  std::string beta_;  // the name of the number
};

FormulaOptimizer schedule_free(FormulaOptimizer declared, const std::string& beta) {
  declared.source = "Defazio et al., \"The Road Less Scheduled\", 2024; the package schedulefree's " + declared.source;
  declared.formula +=
      "\nc = lr'^2 / (sum of all lr'^2), lr' the largest lr so far; x = y + (1 - 1 / beta) * (z - y) is evaluated, "
      "saved\n"
      "and exported, as averaged weights are";
  declared.construct = [beta](nn::ParameterSet& parameters, const OptimizerOptions& options,
                              const FormulaOptimizer& kept) -> std::unique_ptr<Optimizer> {
    return std::make_unique<ScheduleFree>(parameters, options, kept, beta);
  };
  return declared;
}

const FormulaRegistration kScheduleFreeSgd(schedule_free(
    {
        .name = "schedule_free_sgd",
        .formula = "y += c * (z - y) + lr * (beta * (1 - c) - 1) * g;  z -= lr * g, with beta of --momentum; w is y",
        .source = "SGDScheduleFree",
        .slots = {{.name = "z"}},
        .numbers = {{.name = "momentum", .default_value = 0.9, .range = NumberRange::kOpenUnit, .flag = "momentum"}},
        .make = [](const OptimizerNumbers& n) { return ScheduleFreeSgdFormula{.beta = n.at("momentum")}; },
    },
    "momentum"));

std::vector<OptimizerNumber> adamw_numbers() {
  std::vector<OptimizerNumber> numbers = mean_numbers(1e-8);
  numbers[0].range = NumberRange::kOpenUnit;
  return numbers;
}

const FormulaRegistration kScheduleFreeAdamw(schedule_free(
    {
        .name = "schedule_free_adamw",
        .formula = "v = b2 * v + (1 - b2) * g^2;  g = g / (sqrt(v / (1 - b2^t)) + epsilon) + weight_decay * y\n"
                   "y += c * (z - y) + lr * (beta * (1 - c) - 1) * g;  z -= lr * g, with beta of --adam_beta1; w is y",
        .source = "AdamWScheduleFree",
        .slots = {{.name = "z"}, {.name = "mean_square"}},
        .numbers = adamw_numbers(),
        .make =
            [](const OptimizerNumbers& n) {
              return ScheduleFreeAdamwFormula{
                  .step = {.beta = n.at("beta1")}, .beta2 = n.at("beta2"), .epsilon = n.at("epsilon")};
            },
        .decay = FormulaOptimizer::Decay::kDecoupled,
    },
    "beta1"));

}  // namespace
}  // namespace trainyard::optim
