// Momentum (Polyak 1964) and Nesterov's form of it as TensorFlow computes it: the velocity is not scaled by the
// learning rate, so that a change of the rate acts at once.
#include "trainyard/optim/flat_update.h"
#include "trainyard/optim/optimizer.h"

namespace trainyard::optim {
namespace {

// v = m * v + g;  w -= lr * v  |  w -= lr * (g + m * v)
template <bool kNesterov>
class Momentum : public Optimizer {
 public:
  Momentum(nn::ParameterSet& parameters, const OptimizerOptions& options)
      : Optimizer(parameters, options), velocity_(add_slot("momentum")) {}

  void apply(const StepState& state) override {
    flat_update<1>(*this, state, {velocity_},
                   [momentum = options().momentum](auto gradient, auto weight, auto learning_rate, auto& slot) {
                     const auto m = static_cast<decltype(gradient)>(momentum);
                     slot[0] = m * slot[0] + gradient;
                     return weight - learning_rate * (kNesterov ? gradient + m * slot[0] : slot[0]);
                   });
  }

 private:
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
