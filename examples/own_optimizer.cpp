// An optimizer of one's own, by its name: Signum (Bernstein et al., "signSGD: Compressed optimisation for non-convex
// problems", 2018), which takes the sign of the momentum.
#include <iostream>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

class Signum : public optim::Optimizer {
 public:
  Signum(nn::ParameterSet& parameters, const optim::OptimizerOptions& options)
      : Optimizer(parameters, options, DecayForm::kDecoupled, {{.name = "momentum", .default_value = 0.9}}),
        velocity_(add_slot("velocity")) {}

 protected:
  void update(const optim::StepState& state, const at::Tensor& gradients) override {
    const optim::StepValues now = state.read();
    if (now.found_inf) return;  // a step that a loss scale leaves out
    for (size_t i = 0; i < parameters().segments().size(); ++i) {
      if (!trainable(i)) continue;
      const nn::Segment& segment = parameters().segments()[i];
      at::Tensor w = parameters().values().narrow(0, segment.offset, segment.count);
      at::Tensor v = velocity_.narrow(0, segment.offset, segment.count);
      const at::Tensor g = gradients.narrow(0, segment.offset, segment.count).mul(now.inverse_loss_scale);
      const double momentum = number("momentum"), rate = now.learning_rate * rate_factor(i);
      v.mul_(momentum).add_(g, 1 - momentum);
      w.mul_(1 - rate * update_decay(i)).sub_(v.sign(), rate);
    }
  }

 private:
  at::Tensor velocity_;  // a slot: saved and resumed with the run
};

const core::Registration<optim::OptimizerFactory> kSignum(optim::optimizers(), "signum",
                                                          [](nn::ParameterSet& parameters,
                                                             const optim::OptimizerOptions& options) {
                                                            return std::make_unique<Signum>(parameters, options);
                                                          });

}  // namespace

int main() try {
  const at::Tensor points = core::new_tensor({256, 2, 1, 1}), labels = core::new_tensor({256}, at::kLong);
  core::RandomStream random(1, "points");
  for (int64_t i = 0; i < 256; ++i) {
    const float x = random.uniform(-1, 1), y = random.uniform(-1, 1);
    points[i][0] = x, points[i][1] = y, labels[i] = x * y > 0 ? 1 : 0;
  }
  nn::GraphBuilder b({.image = {2, 1, 1}, .name = "quarters"});
  const auto hidden = b.activation("relu", b.linear("hidden", b.flatten("flat", b.input()), {.out_features = 32}));
  const auto result =
      train::fit({.graph = b.build(b.linear("head", hidden, {.out_features = 2})),
                  .train = std::make_shared<data::TensorSource>(
                      points, labels, data::TensorSourceOptions{.batch_size = 32, .shuffle = true}),
                  .epochs = 40,
                  .optimizer = {.name = "signum", .options = {.numbers = {{"momentum", 0.9}}, .weight_decay = 0.01}},
                  .learning_rate = 0.01});
  std::cout << "loss " << result.loss << (result.loss < 0.2 ? ": learned" : ": lost") << "\n";
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
