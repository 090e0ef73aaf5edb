// Rectified Adam (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020, algorithm 2): steps are
// plain momentum until the mean square has seen enough gradients to divide by.
#include "trainyard/optim/formulas/radam.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

const FormulaRegistration kRadam({
    .name = "torch_radam",
    .formula = "m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2;  M = m / (1 - b1^t)\n"
               "p = 2 / (1 - b2) - 1;  p(t) = p - 2 t * b2^t / (1 - b2^t)\n"
               "p(t) > 5: w -= lr * sqrt((p(t) - 4) (p(t) - 2) p / ((p - 4) (p - 2) p(t))) * M * sqrt(1 - b2^t) / "
               "(sqrt(v) + epsilon)\n"
               "else w -= lr * M",
    .source = "Liu et al. 2020; PyTorch's RAdam",
    .slots = {{.name = "mean"}, {.name = "mean_square"}},
    .numbers = mean_numbers(1e-8),
    .make =
        [](const OptimizerNumbers& n) {
          return RadamFormula{.beta1 = n.at("beta1"), .beta2 = n.at("beta2"), .epsilon = n.at("epsilon")};
        },
    .counts_by_parameter = true,
});

}  // namespace
}  // namespace trainyard::optim
