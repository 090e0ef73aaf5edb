// Stochastic gradient descent without state.
#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/formulas.h"

namespace trainyard::optim {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(nn::ParameterSet& parameters, const OptimizerOptions& options) : Optimizer(parameters, options) {}

 private:
  void update(const StepState& state, const at::Tensor& gradients) override {
    flat_update(*this, state, gradients, {}, SgdFormula{});
  }
};

const core::Registration kSgd(optimizers(), "sgd", [](nn::ParameterSet& parameters, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(parameters, options);
});

}  // namespace
}  // namespace trainyard::optim
