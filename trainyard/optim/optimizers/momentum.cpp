// Momentum (Polyak 1964) and Nesterov's form of it, as four programs compute them. In the first two and in PyTorch's
// the velocity is not scaled by the learning rate, so that a change of the rate acts at once; in Keras' it is.
#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

const FormulaRegistration kMomentum({
    .name = "momentum",
    .formula = "v = m * v + g;  w -= lr * v",
    .source = "Polyak 1964; TensorFlow 1's MomentumOptimizer",
    .slots = {{.name = "momentum"}},
    .hyperparameters = {"momentum"},
    .make = [](const OptimizerOptions& options) { return MomentumFormula<false>{.momentum = options.momentum}; },
});

const FormulaRegistration kNesterov({
    .name = "nesterov",
    .formula = "v = m * v + g;  w -= lr * (g + m * v)",
    .source = "TensorFlow 1's MomentumOptimizer with use_nesterov, which is tf_cnn_benchmarks' momentum",
    .slots = {{.name = "momentum"}},
    .hyperparameters = {"momentum"},
    .make = [](const OptimizerOptions& options) { return MomentumFormula<true>{.momentum = options.momentum}; },
});

// PyTorch counts the first update for each parameter; here it is that of the optimizer, which differs for a parameter
// that is frozen at first.
const FormulaRegistration kTorchMomentum({
    .name = "torch_momentum",
    .formula = "v = m * v + (1 - dampening) * g, in the first update v = g;  w -= lr * v\n"
               "nesterov: w -= lr * (g + m * v);  m = 0: w -= lr * g",
    .source = "PyTorch's SGD",
    .slots = {{.name = "momentum"}},
    .hyperparameters = {"dampening", "momentum"},
    .make = [](const OptimizerOptions& options) -> AnyFormula {
      if (options.nesterov) {
        return TorchMomentumFormula<true>{.momentum = options.momentum, .dampening = options.dampening};
      }
      return TorchMomentumFormula<false>{.momentum = options.momentum, .dampening = options.dampening};
    },
});

const FormulaRegistration kKerasMomentum({
    .name = "keras_momentum",
    .formula = "v = m * v - lr * g;  w += v\n"
               "nesterov: w += m * v - lr * g",
    .source = "Keras' SGD",
    .slots = {{.name = "momentum"}},
    .hyperparameters = {"momentum"},
    .make = [](const OptimizerOptions& options) -> AnyFormula {
      if (options.nesterov) return KerasMomentumFormula<true>{.momentum = options.momentum};
      return KerasMomentumFormula<false>{.momentum = options.momentum};
    },
});

}  // namespace
}  // namespace trainyard::optim
