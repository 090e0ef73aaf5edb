// Averages of weights in a training: which steps they follow, on how many replicas, and that a run that is stopped and
// goes on has the same ones.
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::averaged_training_test {
namespace {

const optim::WeightAverageOptions kExponential{.decay = 0.8, .warmup = true};

TowerTrainerOptions averaged(const optim::WeightAverageOptions& average, int replicas = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.average = average;
  return options;
}

// Keeps the values after each step.
struct Values : Callback {
  std::string name() const override { return "values"; }
  void after_step(Trainer& trainer, const StepView&) override {
    auto& own = static_cast<TowerTrainer&>(trainer);
    all.push_back(own.parameters().values().clone());
    if (own.average() != nullptr) averages.push_back(own.average()->weights().values().clone());
  }
  std::vector<at::Tensor> all, averages;
};

at::Tensor largest(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max();
}

TEST(AveragedTraining, FollowsEachStepInEachMode) {
  for (const char* mode : {"parameter_server", "replicated", "independent", "asynchronous"}) {
    for (const int replicas : {1, 2}) {
      TowerTrainerOptions options = averaged({.decay = 0.75}, replicas);
      options.exchange.variable_update = mode;
      TowerTrainer trainer(options, tiny_source(80, 8, replicas));
      at::Tensor expected = trainer.parameters().values().clone();
      const auto values = std::make_shared<Values>();
      trainer.add(values);
      trainer.train({.steps_per_epoch = 5});
      if (std::string(mode) == "asynchronous" && replicas == 2) continue;  // which values replica 0 saw is chance
      for (size_t step = 0; step < 5; ++step) {
        expected = expected.lerp(values->all[step], 0.25);
        EXPECT_LT(largest(values->averages[step], expected).item<float>(), 1e-6F) << mode << " " << replicas;
      }
      EXPECT_GT(largest(values->averages[4], values->all[4]).item<float>(), 1e-4F);
    }
  }
}

// As a program does that loads weights into a trainer, in the place of those with which it was made.
TEST(AveragedTraining, BeginsWithTheValuesOfTheFirstStep) {
  TowerTrainer trainer(averaged({.decay = 0.75}), tiny_source(80, 8));
  const auto halve = [](nn::ParameterSet& set) { set.values().mul_(0.5); };
  trainer.change_parameters(halve);
  at::Tensor expected = trainer.parameters().values().clone();
  EXPECT_TRUE(trainer.average()->weights().values().equal(expected));
  const auto values = std::make_shared<Values>();
  trainer.add(values);
  trainer.train({.steps_per_epoch = 3});
  for (size_t step = 0; step < 3; ++step) {
    expected = expected.lerp(values->all[step], 0.25);
    EXPECT_LT(largest(values->averages[step], expected).item<float>(), 1e-6F) << step;
  }
  trainer.change_parameters(halve);  // from the first step on it follows the steps alone
  EXPECT_LT(largest(trainer.average()->weights().values(), expected).item<float>(), 1e-6F);
}

TEST(AveragedTraining, ChangesNothingInTheTraining) {
  TowerTrainer plain(tiny_options(), tiny_source(40, 8)), with(averaged(kExponential), tiny_source(40, 8));
  plain.train({.steps_per_epoch = 4});
  with.train({.steps_per_epoch = 4});
  EXPECT_TRUE(plain.parameters().values().equal(with.parameters().values()));
  EXPECT_EQ(plain.average(), nullptr);
}

// Spoils the gradients of the second step.
std::function<void(int, nn::ParameterSet&)> spoil_second() {
  return [calls = std::make_shared<int>(0)](int, nn::ParameterSet& set) {
    if ((*calls)++ == 1) set.gradient({0}).fill_(std::numeric_limits<double>::infinity());
  };
}

TEST(AveragedTraining, SkippedStepsDoNotCount) {
  TowerTrainerOptions options = averaged({.decay = 0.5});
  options.on_nan = OnNan::kSkip;
  options.hooks.reduce_pre = spoil_second();
  TowerTrainer trainer(options, tiny_source(40, 8));
  trainer.train({.steps_per_epoch = 4});
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(trainer.average()->updates(), 3);
}

TEST(AveragedTraining, StepsThatTheLossScaleSkipsDoNotCount) {
  TowerTrainerOptions options = averaged({.decay = 0.5});
  options.devices.loss_scale = optim::LossScalerOptions{.scale = 64, .automatic = true};
  options.hooks.reduce_pre = spoil_second();
  TowerTrainer trainer(options, tiny_source(40, 8));
  trainer.train({.steps_per_epoch = 4});
  EXPECT_EQ(trainer.loss_scale()->scale, 32);
  EXPECT_EQ(trainer.average()->updates(), 3);
}

TEST(AveragedTraining, GoesOnFromACheckpointBitForBit) {
  for (const optim::WeightAverageOptions& average :
       {kExponential, optim::WeightAverageOptions{.kind = optim::AverageKind::kEqual, .every = 2, .first_step = 3}}) {
    for (const int replicas : {1, 2}) {
      TowerTrainerOptions options = averaged(average, replicas);
      options.exchange.variable_update = "replicated";
      TowerTrainer straight(options, tiny_source(80, 8, replicas));
      straight.train({.steps_per_epoch = 9});
      TowerTrainer first(options, tiny_source(80, 8, replicas)), second(options, tiny_source(80, 8, replicas));
      first.train({.steps_per_epoch = 4});
      core::MemoryState saved;
      first.save(saved);
      second.load(saved);
      second.train({.steps_per_epoch = 9, .starting_step = 4});
      EXPECT_TRUE(second.average()->weights().values().equal(straight.average()->weights().values()));
      EXPECT_TRUE(second.average()->weights().buffer(0).equal(straight.average()->weights().buffer(0)));
      EXPECT_EQ(second.average()->updates(), straight.average()->updates());
      EXPECT_TRUE(saved.has("average/weights/conv.weight"));
    }
  }
}

TEST(AveragedTraining, BeginsAnewWhereACheckpointHasNone) {
  TowerTrainer plain(tiny_options(), tiny_source(40, 8));
  plain.train({.steps_per_epoch = 3});
  core::MemoryState saved;
  plain.save(saved);
  TowerTrainer with(averaged(kExponential), tiny_source(40, 8));
  testing::internal::CaptureStderr();
  with.load(saved);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("has no averaged weights"), std::string::npos);
  EXPECT_TRUE(with.average()->weights().values().equal(plain.parameters().values()));
  core::MemoryState other;
  with.save(other);
  testing::internal::CaptureStderr();
  plain.load(other);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("averaged weights end here"), std::string::npos);
}

// An evaluation binds an executor of its own, which sees what the average becomes.
TEST(AveragedTraining, IsEvaluatedAsItStands) {
  TowerTrainer trainer(averaged(kExponential), tiny_source(40, 8));
  Evaluator last({.graph = tiny_graph()}, trainer.parameters());
  Evaluator mean({.graph = tiny_graph()}, trainer.average()->weights());
  const auto loss = [](Evaluator& evaluator) { return evaluator.run(*tiny_source(40, 8, 1, false)).loss; };
  EXPECT_EQ(loss(last), loss(mean));
  trainer.train({.steps_per_epoch = 5});
  EXPECT_NE(loss(last), loss(mean));
  nn::ParameterSet copy = trainer.parameters().clone();
  copy.copy_from(trainer.average()->weights());
  Evaluator again({.graph = tiny_graph()}, copy);
  EXPECT_EQ(loss(again), loss(mean));
}

// A replay of a recorded step does not call its work again.
TEST(AveragedTraining, CountsStepsThatAreReplayed) {
  for (const bool capture : {false, true}) {
    const auto accelerator = std::make_shared<FakeAccelerator>();
    TowerTrainerOptions options = averaged(kExponential);
    options.devices.accelerators = {accelerator};
    options.devices.capture_steps = capture;
    TowerTrainer trainer(options, tiny_source(40, 8));
    trainer.train({.steps_per_epoch = 9});
    EXPECT_EQ(trainer.average()->updates(), 9);
    EXPECT_EQ(accelerator->replays > 0, capture);
  }
}

TEST(AveragedTraining, RefusesALossScaleThatSkipsOnAccelerators) {
  TowerTrainerOptions options = averaged(kExponential);
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  options.devices.loss_scale = optim::LossScalerOptions{.automatic = true};
  EXPECT_THROW(options.validate(), core::Error);
  options.devices.loss_scale->automatic = false;
  EXPECT_NO_THROW(options.validate());
  options.average->decay = 2;
  EXPECT_THROW(options.validate(), core::Error);
}

// Values that replica 0 was given, and that all others take over.
TEST(AveragedTraining, BeginsWithTheValuesThatWereBroadcast) {
  const auto trained = [](bool by_broadcast) {
    TowerTrainerOptions options = averaged({.decay = 0.75}, 2);
    options.exchange.variable_update = "replicated";
    options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
    auto trainer = std::make_unique<TowerTrainer>(options, tiny_source(80, 8, 2));
    if (by_broadcast) {
      const at::NoGradGuard no_grad;
      trainer->parameters().values().mul_(0.5);
      trainer->parameters().values_changed();
      trainer->broadcast();
    } else {
      trainer->change_parameters([](nn::ParameterSet& set) { set.values().mul_(0.5); });
    }
    EXPECT_TRUE(trainer->average()->weights().values().equal(trainer->parameters().values()));
    trainer->train({.steps_per_epoch = 3});
    return trainer;
  };
  const auto changed = trained(false), broadcast = trained(true);
  EXPECT_TRUE(broadcast->parameters().values().equal(changed->parameters().values()));
  EXPECT_TRUE(broadcast->average()->weights().values().equal(changed->average()->weights().values()));
  EXPECT_EQ(broadcast->last_base_loss(), changed->last_base_loss());
}

}  // namespace
}  // namespace trainyard::train::averaged_training_test
