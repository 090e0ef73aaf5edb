// Stochastic gradient descent without state: w -= lr * g.
#include "trainyard/optim/flat_update.h"
#include "trainyard/optim/optimizer.h"

namespace trainyard::optim {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(nn::ParameterSet& parameters, const OptimizerOptions& options) : Optimizer(parameters, options) {}

  void apply(const StepState& state) override {
    flat_update<0>(*this, state, {}, [](auto gradient, auto weight, auto learning_rate, auto&) {
      return weight - learning_rate * gradient;
    });
  }
};

const core::Registration kSgd(optimizers(), "sgd", [](nn::ParameterSet& parameters, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(parameters, options);
});

}  // namespace
}  // namespace trainyard::optim
