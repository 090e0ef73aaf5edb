// Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015) and AdamW (Loshchilov and Hutter, "Decoupled
// Weight Decay Regularization", 2019). TensorFlow and Keras compute the form at the end of the paper's section 2, whose
// epsilon is added to a root that is not corrected ("epsilon hat"); PyTorch computes its algorithm 1.
#include "trainyard/optim/formulas/adam.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

constexpr const char* kMeans = "m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2";
constexpr const char* kEpsilonHat = "w -= lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)";
constexpr const char* kCorrectedRoot = "w -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + epsilon)";

FormulaOptimizer adam(const std::string& name, const std::string& source, bool corrected_root, bool decoupled) {
  return {.name = name,
          .formula = (decoupled ? "w -= lr * weight_decay * w;  " : "") + std::string(kMeans) + "\n" +
                     (corrected_root ? kCorrectedRoot : kEpsilonHat),
          .source = source,
          .slots = {{.name = "mean"}, {.name = "mean_square"}},
          .numbers = mean_numbers(),
          .make =
              [corrected_root](const OptimizerNumbers& n) {
                return AdamFormula{.beta1 = n.at("beta1"),
                                   .beta2 = n.at("beta2"),
                                   .epsilon = n.at("epsilon"),
                                   .corrected_root = corrected_root};
              },
          .decay = decoupled ? FormulaOptimizer::Decay::kDecoupled : FormulaOptimizer::Decay::kByOptions,
          .counts_by_parameter = corrected_root};  // PyTorch's
}

const FormulaRegistration kAdam(adam("tf_adam", "Kingma and Ba 2015; TensorFlow 1's AdamOptimizer and Keras' Adam",
                                     false, false));
const FormulaRegistration kTorchAdam(adam("torch_adam", "Kingma and Ba 2015; PyTorch's Adam", true, false));
const FormulaRegistration kAdamw(adam("torch_adamw", "Loshchilov and Hutter 2019; PyTorch's AdamW", true, true));
const FormulaRegistration kKerasAdamw(adam("keras_adamw", "Loshchilov and Hutter 2019; Keras' AdamW", false, true));

}  // namespace
}  // namespace trainyard::optim
