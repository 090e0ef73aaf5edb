// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2): the sign of an interpolated
// momentum, so that every element of a parameter moves by the same length. Its rate is a third to a tenth of AdamW's,
// and its weight decay as many times larger.
#include "trainyard/optim/formulas/lion.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

const FormulaRegistration kLion({
    .name = "lion",
    .formula = "w -= lr * weight_decay * w;  w -= lr * sign(b1 * m + (1 - b1) * g);  m = b2 * m + (1 - b2) * g\n"
               "with b1 of --lion_beta1, b2 of --lion_beta2",
    .source = "Chen et al., \"Symbolic Discovery of Optimization Algorithms\", 2023, algorithm 2; the package "
              "lion-pytorch",
    .slots = {{.name = "mean"}},
    .numbers = {{.name = "beta1",
                 .default_value = 0.9,
                 .range = NumberRange::kBelowOne,
                 .flag = "lion_beta1",
                 .flag_help = "part of lion's mean in its direction"},
                {.name = "beta2",
                 .default_value = 0.99,
                 .range = NumberRange::kBelowOne,
                 .flag = "lion_beta2",
                 .flag_help = "decay of lion's mean"}},
    .make = [](const OptimizerNumbers& n) { return LionFormula{.beta1 = n.at("beta1"), .beta2 = n.at("beta2")}; },
    .decay = FormulaOptimizer::Decay::kDecoupled,
});

}  // namespace
}  // namespace trainyard::optim
