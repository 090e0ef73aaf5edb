// Optimizers for large batches, which give each parameter a rate by the norms of its weights and of its update.
//
// In both, g is clipped by value and includes regularization other than weight decay before its norm is computed. The
// ratio is 1 where one of the norms is 0, and for parameters that do not decay, as the authors' programs exclude biases
// and batch normalization; the number "adapt_undecayed" gives those a ratio, too. lars adds the weight decay behind its
// norms; that of lamb is a part of the direction whose norm counts, and no part of the loss. Elements that a mask holds
// at zero count in the norm of the update.
#include "trainyard/optim/formulas/layer_rates.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

const FormulaRegistration kLars({
    .name = "lars",
    .formula = "l = eta * |w| / (|g| + weight_decay * |w|);  v = m * v + lr * l * (g + weight_decay * w);  w -= v",
    .source = "You, Gitman and Ginsburg, \"Large Batch Training of Convolutional Networks\", 2017, algorithm 1",
    .slots = {{.name = "momentum"}},
    .numbers = {momentum_number(),
                {.name = "trust_coefficient",
                 .default_value = 0.001,
                 .range = NumberRange::kPositive,
                 .changes = false,
                 .flag = "lars_trust_coefficient",
                 .flag_help = "eta of lars"},
                adapt_undecayed_number()},
    .make =
        [](const OptimizerNumbers& n) {
          return LarsFormula{.momentum = n.at("momentum"), .trust_coefficient = n.at("trust_coefficient")};
        },
    .decay = FormulaOptimizer::Decay::kInUpdate,
});

std::vector<OptimizerNumber> lamb_numbers() {
  std::vector<OptimizerNumber> numbers = mean_numbers();
  numbers.push_back({.name = "bias_correction",
                     .default_value = 1,
                     .range = NumberRange::kSwitch,
                     .changes = false,
                     .flag = "lamb_bias_correction",
                     .flag_help = "correct the bias of lamb's means"});
  numbers.push_back(adapt_undecayed_number());
  return numbers;
}

const FormulaRegistration kLamb({
    .name = "lamb",
    .formula = "m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2\n"
               "r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) + weight_decay * w;  w -= lr * |w| / |r| * r\n"
               "without bias correction: m and v in the place of the corrected ones",
    .source = "You et al., \"Large Batch Optimization for Deep Learning: Training BERT in 76 minutes\", 2020, "
              "algorithm 2 of the fifth version with phi(x) = x",
    .slots = {{.name = "mean"}, {.name = "mean_square"}},
    .numbers = lamb_numbers(),
    .make =
        [](const OptimizerNumbers& n) {
          return LambFormula{.beta1 = n.at("beta1"),
                             .beta2 = n.at("beta2"),
                             .epsilon = n.at("epsilon"),
                             .bias_correction = n.at("bias_correction") != 0};
        },
    .decay = FormulaOptimizer::Decay::kDecoupled,
});

}  // namespace
}  // namespace trainyard::optim
