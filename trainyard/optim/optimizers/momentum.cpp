#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/formulas.h"

namespace trainyard::optim {
namespace {

template <bool kNesterov>
class Momentum : public Optimizer {
 public:
  Momentum(nn::ParameterSet& parameters, const OptimizerOptions& options)
      : Optimizer(parameters, options), velocity_(add_slot("momentum")) {}

  std::vector<std::string> hyperparameter_names() const override { return {"momentum", "weight_decay"}; }

 private:
  void update(const StepState& state, const at::Tensor& gradients) override {
    flat_update(*this, state, gradients, {velocity_}, MomentumFormula<kNesterov>{.momentum = options().momentum});
  }

  at::Tensor velocity_;
};

const core::Registration kMomentum(optimizers(), "momentum",
                                   [](nn::ParameterSet& parameters, const OptimizerOptions& options) {
                                     return std::make_unique<Momentum<false>>(parameters, options);
                                   });
const core::Registration kNesterov(optimizers(), "nesterov",
                                   [](nn::ParameterSet& parameters, const OptimizerOptions& options) {
                                     return std::make_unique<Momentum<true>>(parameters, options);
                                   });

}  // namespace
}  // namespace trainyard::optim
