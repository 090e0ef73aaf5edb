// Adam with Nesterov's momentum (Dozat, "Incorporating Nesterov momentum into Adam", 2016), in two forms that differ in
// the schedule of their momentum alone. Both correct the bias of m by the product of momenta, that of v by b2^t, and
// add epsilon behind the root of the corrected v. As in the original, torch_nadam counts the updates of each parameter,
// keras_nadam those of the optimizer.
#include "trainyard/optim/formulas/nadam.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

FormulaOptimizer nadam(const std::string& name, const std::string& source, double momentum_decay) {
  return {.name = name,
          .formula = "u(t) = b1 * (1 - 0.5 * 0.96^" + std::string(momentum_decay == 1 ? "t" : "(0.004 t)") +
                     ");  U(t) = u(1) * ... * u(t)\n"
                     "m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2\n"
                     "w -= lr * ((1 - u(t)) / (1 - U(t)) * g + u(t+1) / (1 - U(t+1)) * m) / (sqrt(v / (1 - b2^t)) + "
                     "epsilon)",
          .source = source,
          .slots = {{.name = "mean"}, {.name = "mean_square"}},
          .numbers = mean_numbers(),
          .make =
              [momentum_decay](const OptimizerNumbers& n) {
                return NadamFormula{.beta1 = n.at("beta1"),
                                    .beta2 = n.at("beta2"),
                                    .epsilon = n.at("epsilon"),
                                    .momentum_decay = momentum_decay};
              },
          .counts_by_parameter = momentum_decay != 1};  // PyTorch's
}

const FormulaRegistration kNadam(nadam(
    "torch_nadam", "Dozat 2016; PyTorch's NAdam with its momentum_decay of 0.004, and tf.keras' up to 2.10", 0.004));
const FormulaRegistration kKerasNadam(nadam("keras_nadam", "Dozat 2016; Keras' Nadam from 2.11 on", 1));

}  // namespace
}  // namespace trainyard::optim
