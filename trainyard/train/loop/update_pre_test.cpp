// What update_pre is shown is what the optimizer uses: reduced, without the loss scale, with the regularization.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::update_pre_test {
namespace {

constexpr double kRate = 0.125, kDecay = 0.25;

// Plain sgd, so that the update is -rate times the gradient.
TowerTrainerOptions sgd_options(const std::string& mode, int replicas) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false}, replicas);
  options.exchange.variable_update = mode;
  options.learning_rate = optim::constant(kRate);
  options.make_optimizer = [](nn::ParameterSet& set) {
    return optim::optimizers().get("sgd")(set, {.weight_decay = kDecay});
  };
  return options;
}

// The values after one step.
at::Tensor after_one_step(const TowerTrainerOptions& options) {
  TowerTrainer trainer(options, tiny_source(80, 16 / options.devices.replicas, options.devices.replicas));
  trainer.train({.steps_per_epoch = 1});
  return trainer.parameters().values().clone();
}

float largest(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<float>();
}

TEST(UpdatePre, SeesTheGradientThatTheOptimizerUses) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    for (const int replicas : {1, 2}) {
      for (const bool scaled : {false, true}) {
        TowerTrainerOptions options = sgd_options(mode, replicas);
        const at::Tensor start =
            TowerTrainer(options, tiny_source(80, 16 / replicas, replicas)).parameters().values().clone();
        const at::Tensor plain = after_one_step(options);
        if (scaled) options.devices.loss_scale = optim::LossScalerOptions{.scale = 1024};
        at::Tensor seen;
        options.hooks.update_pre = [&](int r, nn::ParameterSet& set) {
          if (r == 0) seen = set.gradients().clone();
        };
        const std::string which = std::string(mode) + " " + std::to_string(replicas) + (scaled ? " scaled" : "");
        EXPECT_LT(largest(after_one_step(options), plain), 1e-6F) << which << ": looking changes nothing";
        EXPECT_LT(largest(start.sub(seen, kRate), plain), 1e-6F) << which;
      }
    }
  }
}

TEST(UpdatePre, ClipsTheGlobalNormUnderALossScale) {
  constexpr double kNorm = 0.01;
  TowerTrainerOptions options = sgd_options("replicated", 2);
  const at::Tensor start = TowerTrainer(options, tiny_source(80, 8, 2)).parameters().values().clone();
  double norm_before = 0;
  options.hooks.update_pre = [&](int r, nn::ParameterSet& set) {
    const double norm = set.gradients().norm().item<double>();
    if (r == 0) norm_before = norm;
    if (norm > kNorm) set.gradients().mul_(kNorm / norm);
  };
  const at::Tensor unscaled = after_one_step(options);
  EXPECT_GT(norm_before, kNorm) << "else nothing is clipped";
  EXPECT_NEAR(unscaled.sub(start).norm().item<double>(), kRate * kNorm, 1e-6);
  const double norm_unscaled = norm_before;
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 4096};
  EXPECT_LT(largest(after_one_step(options), unscaled), 1e-6F);
  EXPECT_NEAR(norm_before, norm_unscaled, 1e-4);
}

// The derivative of sqrt at 0 times 0: the loss is finite, a gradient is not.
TEST(UpdatePre, MayMendAGradientThatIsNotFinite) {
  for (const int replicas : {1, 2}) {
    TowerTrainerOptions options = sgd_options("parameter_server", replicas);
    options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
      const at::Tensor root = output.sub(output.detach()).square().sum().sqrt();  // 0, and its gradient NaN
      return nn::softmax_cross_entropy(output, labels).add(root);
    });
    options.hooks.update_pre = [](int, nn::ParameterSet& set) { set.gradients().nan_to_num_(0, 0, 0); };
    const at::Tensor values = after_one_step(options);
    EXPECT_TRUE(values.isfinite().all().item<bool>());
    options.hooks.update_pre = nullptr;
    EXPECT_ANY_THROW(after_one_step(options));
  }
}

TEST(UpdatePre, ViewsTellGradientsByName) {
  struct Look : Callback {
    std::string name() const override { return "look"; }
    void after_step(Trainer&, const StepView& view) override {
      gradient = view.replicas[0].gradient("fc.bias").clone();
      EXPECT_ANY_THROW(view.replicas[0].gradient("fc.bais"));
    }
    at::Tensor gradient;
  };
  std::vector<at::Tensor> gradients;
  for (const bool scaled : {false, true}) {
    TowerTrainerOptions options = sgd_options("replicated", 1);
    if (scaled) options.devices.loss_scale = optim::LossScalerOptions{.scale = 256};
    TowerTrainer trainer(options, tiny_source(80, 16));
    const auto look = std::make_shared<Look>();
    trainer.add(look);
    trainer.train({.steps_per_epoch = 1});
    gradients.push_back(look->gradient);
  }
  ASSERT_EQ(gradients[0].numel(), kTinyClasses);
  EXPECT_GT(gradients[0].abs().max().item<float>(), 1e-3F);
  EXPECT_LT(largest(gradients[0], gradients[1]), 1e-6F);
}

}  // namespace
}  // namespace trainyard::train::update_pre_test
