// Optimizers for large batches, which give each parameter a rate by the norms of its weights and of its update.
//
// In both, g is clipped by value, and holds terms of regularization beside weight decay, before a norm is taken. The
// ratio is 1 where one of the norms is 0, and for parameters that do not decay, as the authors' programs
// exclude biases and batch normalization; OptimizerOptions::adapt_undecayed gives those a ratio, too. lars adds the
// weight decay behind its norms; that of lamb is a part of the direction whose norm counts, and no part of the loss.
// Elements that a mask holds at zero count in the norm of the update.
#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

const FormulaRegistration kLars({
    .name = "lars",
    .formula = "l = eta * |w| / (|g| + weight_decay * |w|);  v = m * v + lr * l * (g + weight_decay * w);  w -= v",
    .source = "You, Gitman and Ginsburg, \"Large Batch Training of Convolutional Networks\", 2017, algorithm 1",
    .slots = {{.name = "momentum"}},
    .hyperparameters = {"momentum"},
    .make =
        [](const OptimizerOptions& options) {
          return LarsFormula{.momentum = options.momentum, .trust_coefficient = options.trust_coefficient};
        },
    .decay = FormulaOptimizer::Decay::kInUpdate,
});

const FormulaRegistration kLamb({
    .name = "lamb",
    .formula = "m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2\n"
               "r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) + weight_decay * w;  w -= lr * |w| / |r| * r\n"
               "without bias correction: m and v in the place of the corrected ones",
    .source = "You et al., \"Large Batch Optimization for Deep Learning: Training BERT in 76 minutes\", 2020, "
              "algorithm 2 of the fifth version with phi(x) = x",
    .slots = {{.name = "mean"}, {.name = "mean_square"}},
    .hyperparameters = {"beta1", "beta2", "epsilon"},
    .make =
        [](const OptimizerOptions& options) {
          return LambFormula{.beta1 = options.beta1,
                             .beta2 = options.beta2,
                             .epsilon = options.epsilon,
                             .bias_correction = options.bias_correction};
        },
    .decay = FormulaOptimizer::Decay::kDecoupled,
});

}  // namespace
}  // namespace trainyard::optim
