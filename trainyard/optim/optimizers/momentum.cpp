// Momentum (Polyak 1964) and Nesterov's form of it, as four programs compute them. In the first two and in PyTorch's
// the velocity is not scaled by the learning rate, so that a change of the rate acts at once; in Keras' it is.
#include "trainyard/optim/formulas/momentum.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

OptimizerNumber nesterov_number() {
  return {.name = "nesterov", .range = NumberRange::kSwitch, .changes = false, .flag = "nesterov"};
}

const FormulaRegistration kMomentum({
    .name = "tf_momentum",
    .formula = "v = m * v + g;  w -= lr * v",
    .source = "Polyak 1964; TensorFlow 1's MomentumOptimizer",
    .slots = {{.name = "momentum"}},
    .numbers = {momentum_number()},
    .make = [](const OptimizerNumbers& n) { return MomentumFormula<false>{.momentum = n.at("momentum")}; },
});

const FormulaRegistration kNesterov({
    .name = "tf_nesterov",
    .formula = "v = m * v + g;  w -= lr * (g + m * v)",
    .source = "TensorFlow 1's MomentumOptimizer with use_nesterov, which is tf_cnn_benchmarks' momentum",
    .slots = {{.name = "momentum"}},
    .numbers = {momentum_number()},
    .make = [](const OptimizerNumbers& n) { return MomentumFormula<true>{.momentum = n.at("momentum")}; },
});

const FormulaRegistration kTorchMomentum({
    .name = "torch_momentum",
    .formula = "v = m * v + (1 - dampening) * g, in the first update v = g;  w -= lr * v\n"
               "nesterov: w -= lr * (g + m * v);  m = 0: w -= lr * g",
    .source = "PyTorch's SGD",
    .slots = {{.name = "momentum"}},
    .numbers = {momentum_number(), {.name = "dampening", .flag = "momentum_dampening"}, nesterov_number()},
    .make = [](const OptimizerNumbers& n) -> AnyFormula {
      if (n.at("nesterov") != 0) {
        return TorchMomentumFormula<true>{.momentum = n.at("momentum"), .dampening = n.at("dampening")};
      }
      return TorchMomentumFormula<false>{.momentum = n.at("momentum"), .dampening = n.at("dampening")};
    },
    .counts_by_parameter = true,
});

const FormulaRegistration kKerasMomentum({
    .name = "keras_momentum",
    .formula = "v = m * v - lr * g;  w += v\n"
               "nesterov: w += m * v - lr * g",
    .source = "Keras' SGD",
    .slots = {{.name = "momentum"}},
    .numbers = {momentum_number(), nesterov_number()},
    .make = [](const OptimizerNumbers& n) -> AnyFormula {
      if (n.at("nesterov") != 0) return KerasMomentumFormula<true>{.momentum = n.at("momentum")};
      return KerasMomentumFormula<false>{.momentum = n.at("momentum")};
    },
});

}  // namespace
}  // namespace trainyard::optim
