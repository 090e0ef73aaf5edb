// Stochastic gradient descent without state.
#include "trainyard/optim/formulas/sgd.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

const FormulaRegistration kSgd({
    .name = "sgd",
    .formula = "w -= lr * g",
    .source = "stochastic gradient descent",
    .make = [](const OptimizerNumbers&) { return SgdFormula{}; },
});

}  // namespace
}  // namespace trainyard::optim
