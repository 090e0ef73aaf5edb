// RMSProp (Tieleman and Hinton, lecture 6.5 of "Neural Networks for Machine Learning", 2012) as three programs compute
// it. They differ in the position of epsilon, in whether the rate is within the velocity, and in the initial mean
// square.
#include "trainyard/optim/formulas/rmsprop.h"

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {
namespace {

template <template <bool> typename Formula>
AnyFormula make_rmsprop(const OptimizerNumbers& n) {
  const auto numbers = [&]<bool kCentered>() {
    return Formula<kCentered>{
        .decay = n.at("mean_square_decay"), .momentum = n.at("momentum"), .epsilon = n.at("epsilon")};
  };
  if (n.at("centered") != 0) return numbers.template operator()<true>();
  return numbers.template operator()<false>();
}

std::vector<OptimizerNumber> rmsprop_numbers() {
  return {{.name = "mean_square_decay", .default_value = 0.9, .flag = "rmsprop_decay"},
          {.name = "momentum", .default_value = 0.9, .flag = "rmsprop_momentum"},
          {.name = "epsilon", .default_value = 1e-7, .range = NumberRange::kPositive, .flag = "rmsprop_epsilon"},
          {.name = "centered", .range = NumberRange::kSwitch, .changes = false, .flag = "rmsprop_centered"}};
}

FormulaOptimizer rmsprop(const std::string& name, const std::string& source, double first_square) {
  return {.name = name,
          .formula = "s = d * s + (1 - d) * g^2, from s = " + std::string(first_square == 0 ? "0" : "1") +
                     ";  v = m * v + lr * g / sqrt(s + epsilon);  w -= v\n"
                     "centered: a = d * a + (1 - d) * g, and s - a^2 in the root",
          .source = source,
          .slots = {{.name = "mean_square", .initial = first_square}, {.name = "momentum"}, {.name = "mean"}},
          .numbers = rmsprop_numbers(),
          .make = make_rmsprop<RmspropFormula>};
}

const FormulaRegistration kRmsprop(rmsprop("tf_rmsprop", "TensorFlow 1's RMSPropOptimizer", 1));
const FormulaRegistration kKerasRmsprop(rmsprop("keras_rmsprop", "Keras' RMSprop", 0));

const FormulaRegistration kTorchRmsprop({
    .name = "torch_rmsprop",
    .formula = "s = d * s + (1 - d) * g^2;  v = m * v + g / (sqrt(s) + epsilon);  w -= lr * v\n"
               "centered: a = d * a + (1 - d) * g, and s - a^2 in the root",
    .source = "PyTorch's RMSprop",
    .slots = {{.name = "mean_square"}, {.name = "momentum"}, {.name = "mean"}},
    .numbers = rmsprop_numbers(),
    .make = make_rmsprop<TorchRmspropFormula>,
});

}  // namespace
}  // namespace trainyard::optim
