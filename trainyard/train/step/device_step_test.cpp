// Steps on an accelerator that is a fake on the CPU: where batches go, what is recorded, what an error says. What a GPU
// does with them: nn/cuda.
#include "trainyard/train/step/device_step.h"

#include <functional>
#include <memory>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/train/profile/step_recorder.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::device_step_test {
namespace {

data::Batch batch_of(double value, int64_t count = 2) {
  return {.tensors = {{"images", at::full({count, 3, 2, 2}, value, at::kFloat)},
                      {"labels", at::full({count}, 1, at::kLong)}}};
}

struct Rig {
  explicit Rig(const DeviceStep::Options& options = {.classes = 10}) : step(accelerator, options) {}
  DeviceStep::Done run(const data::Batch& batch) {
    return step.run(batch, false, [this](const data::Batch& placed) {
      ++runs;
      seen = placed;
      if (fails) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    });
  }
  std::shared_ptr<FakeAccelerator> accelerator = std::make_shared<FakeAccelerator>();
  DeviceStep step;
  data::Batch seen;
  int runs = 0;
  bool fails = false;
};

TEST(DeviceStep, EachStepReadsItsBatch) {
  Rig rig;
  for (int step = 1; step < 5; ++step) {
    rig.run(batch_of(step));
    EXPECT_EQ(rig.seen.images()[1][2][1][1].item<float>(), step);
  }
  rig.run(batch_of(3, 5));
  EXPECT_EQ(rig.seen.images().size(0), 5);
}

TEST(DeviceStep, ImagesThatMayBeChangedTravelEachTime) {
  const data::Batch batch = batch_of(1);
  for (const bool keeps : {true, false}) {
    Rig rig({.keeps_images = keeps, .classes = 10});
    for (int step = 0; step < 3; ++step) rig.run(batch);
    EXPECT_EQ(rig.accelerator->copies.size(), keeps ? 2 + 3 : 3 + 3);
  }
}

TEST(DeviceStep, RecordsAfterTheWarmUpAndFillsTheRecordedBuffers) {
  Rig rig({.capture = true, .classes = 10});
  using Done = DeviceStep::Done;
  for (int step = 0; step < StepCapture::kWarmupSteps; ++step) EXPECT_EQ(rig.run(batch_of(step)), Done::kCalled);
  EXPECT_EQ(rig.accelerator->records, 0);
  EXPECT_EQ(rig.run(batch_of(10)), Done::kRecorded);
  EXPECT_EQ(rig.accelerator->records, 1);
  EXPECT_EQ(rig.accelerator->replays, 1);
  const int runs = rig.runs;
  const at::Tensor recorded = rig.seen.images();
  EXPECT_EQ(rig.run(batch_of(11)), Done::kReplayed);
  EXPECT_EQ(rig.runs, runs);  // a replay, which reads the new batch where the recording looks for it
  EXPECT_EQ(rig.accelerator->replays, 2);
  EXPECT_EQ(recorded[0][0][0][0].item<float>(), 11);
  EXPECT_EQ(rig.run(batch_of(12, 5)), Done::kCalled);  // another size runs as it is, and elsewhere
  EXPECT_EQ(rig.runs, runs + 1);
  EXPECT_EQ(rig.run(batch_of(13)), Done::kReplayed);
  EXPECT_EQ(rig.accelerator->replays, 3);
  EXPECT_EQ(recorded[0][0][0][0].item<float>(), 13);
}

TEST(DeviceStep, WhatCannotBeRecordedRunsAsItIs) {
  Rig rig({.capture = true, .classes = 10});
  rig.accelerator->refuses = true;
  for (int step = 0; step < 6; ++step) EXPECT_EQ(rig.run(batch_of(step)), DeviceStep::Done::kCalled);
  EXPECT_EQ(rig.runs, 6);
  Rig obstacle({.capture = true, .obstacle = "micro-steps", .classes = 10});
  for (int step = 0; step < 6; ++step) obstacle.run(batch_of(step));
  EXPECT_EQ(obstacle.runs, 6);
  EXPECT_EQ(obstacle.accelerator->records, 0);
}

TEST(DeviceStep, OutOfMemorySaysWhatFits) {
  Rig rig({.classes = 10, .bytes_per_image = 100, .fixed_bytes = 650});
  rig.fails = true;
  try {
    rig.run(batch_of(1, 4));
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kNoSpace);
    EXPECT_NE(std::string(error.what()).find("with a batch of 4"), std::string::npos) << error.what();
    // 900 held or free, 650 of them fixed: two images.
    EXPECT_NE(std::string(error.what()).find("about 2 fits"), std::string::npos) << error.what();
  }
}

TEST(DeviceStep, LabelsAreCheckedWhileTheyAreOnTheHost) {
  Rig rig({.classes = 1});
  EXPECT_THROW(rig.run(batch_of(1)), core::Error);
  EXPECT_EQ(rig.runs, 0);
}

// The trainer on the fake, recorded or not, trains as without: the same bits. Four steps, as the fake replays one.
// What mixup and CutMix add to a batch.
data::Batch mixed_batch_of(double value, int64_t other_label, float share) {
  data::Batch batch = batch_of(value);
  batch.tensors.set("labels_mixed", at::full({2}, other_label, at::kLong));
  batch.tensors.set("label_shares", at::full({2}, share, at::kFloat));
  return batch;
}

TEST(DeviceStep, MixedLabelsTravelAndAreChecked) {
  Rig rig({.capture = true, .classes = 10});
  for (int step = 0; step < StepCapture::kWarmupSteps; ++step) rig.run(mixed_batch_of(step, 3, 0.5F));
  EXPECT_EQ(rig.run(mixed_batch_of(10, 4, 0.75F)), DeviceStep::Done::kRecorded);
  EXPECT_EQ(rig.run(mixed_batch_of(11, 5, 0.875F)), DeviceStep::Done::kReplayed);
  EXPECT_EQ(rig.seen.tensors["labels_mixed"][1].item<int64_t>(), 5);
  EXPECT_EQ(rig.seen.tensors["label_shares"][1].item<float>(), 0.875F);
  EXPECT_THROW(rig.run(mixed_batch_of(12, 10, 0.5F)), core::Error);
}

TEST(DeviceStep, TheTrainerTrainsTheSame) {
  const auto trained = [](const std::shared_ptr<FakeAccelerator>& accelerator, bool capture) {
    TowerTrainerOptions options = tiny_options();
    if (accelerator != nullptr) options.devices.accelerators = {accelerator};
    options.devices.capture_steps = capture;
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = StepCapture::kWarmupSteps + 1});
    return trainer.parameters().values().clone();
  };
  const auto direct = std::make_shared<FakeAccelerator>(), captured = std::make_shared<FakeAccelerator>();
  const at::Tensor expected = trained(nullptr, false);
  EXPECT_TRUE(trained(direct, false).equal(expected));
  EXPECT_TRUE(trained(captured, true).equal(expected));
  EXPECT_EQ(direct->records, 0);
  EXPECT_EQ(captured->records, 1);
  EXPECT_EQ(captured->replays, 1);
  EXPECT_EQ(captured->steps, StepCapture::kWarmupSteps + 1);
}

// Replicas on devices of their own train as replicas on threads do, bit for bit: what they share on the CPU is copied.
TEST(DeviceStep, ReplicasOnDevicesTrainAsReplicasOnTheCpu) {
  constexpr int kReplicas = 3;
  using Fakes = std::vector<std::shared_ptr<FakeAccelerator>>;
  const auto trained = [](const std::string& mode, const Fakes& fakes, bool capture) {
    TowerTrainerOptions options = tiny_options({}, kReplicas);
    options.exchange.variable_update = mode;
    options.devices.loss_scale =
        optim::LossScalerOptions{.scale = 1024, .automatic = mode != "independent", .raise_after = 2};
    options.devices.accelerators.assign(fakes.begin(), fakes.end());
    options.devices.capture_steps = capture;
    TowerTrainer trainer(options, tiny_source(240, 8, kReplicas));
    trainer.train({.steps_per_epoch = StepCapture::kWarmupSteps + 1});
    core::MemoryState state;
    trainer.save(state);
    return state;
  };
  for (const char* mode : {"parameter_server", "replicated", "independent"}) {
    const core::MemoryState expected = trained(mode, {}, false);
    for (const bool capture : {false, true}) {
      Fakes fakes;
      for (int r = 0; r < kReplicas; ++r) fakes.push_back(std::make_shared<FakeAccelerator>());
      const core::MemoryState actual = trained(mode, fakes, capture);
      EXPECT_EQ(actual.names(), expected.names());
      for (const std::string& name : expected.names("model/")) {
        EXPECT_TRUE(actual.tensor(name).equal(expected.tensor(name))) << mode << " " << name;
      }
      for (const auto& fake : fakes) {
        EXPECT_EQ(fake->records, capture ? 1 : 0);
        EXPECT_EQ(fake->steps, StepCapture::kWarmupSteps + 1);
      }
    }
  }
}

// What is made of the weights, such as their 16-bit copies, is made again where they change: once a step.
TEST(DeviceStep, MicroStepsDoNotChangeTheWeights) {
  const auto changes_of_a_step = [](int micro_steps) {
    TowerTrainerOptions options = tiny_options();
    options.micro_steps = micro_steps;
    options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 1});
    const uint64_t before = trainer.parameters().version();
    trainer.train({.steps_per_epoch = 1});
    return trainer.parameters().version() - before;
  };
  EXPECT_GT(changes_of_a_step(2), 0U);
  EXPECT_EQ(changes_of_a_step(3), changes_of_a_step(2));
}

TEST(DeviceStep, EachReplicaNeedsADevice) {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  EXPECT_THROW(TowerTrainer(options, tiny_source(240, 8, 2)), core::Error);
}

// What a step in between that is not replayed leaves in place of the recording's tensors. The fake's later replays
// write nothing, so the recorded values are still there.
TEST(DeviceStep, AReplaysLossesAreTheRecordings) {
  TowerTrainerOptions options = tiny_options();
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  options.devices.capture_steps = true;
  options.make_optimizer = [](nn::ParameterSet& set) {
    return optim::optimizers().get("tf_nesterov")(set, {.weight_decay = 0.5});
  };
  TowerTrainer trainer(options, tiny_source(240, 8));
  const auto train_one = [&] { trainer.train({.steps_per_epoch = 1}); };
  for (int step = 0; step <= StepCapture::kWarmupSteps; ++step) train_one();
  const double base = trainer.last_base_loss(), total = trainer.last_total_loss();
  StepRecorder recorder(1);
  trainer.record(&recorder);
  train_one();
  EXPECT_NE(trainer.last_base_loss(), base);
  EXPECT_NE(trainer.last_total_loss() - trainer.last_base_loss(), total - base);
  trainer.record(nullptr);
  train_one();
  EXPECT_EQ(trainer.last_base_loss(), base);
  EXPECT_EQ(trainer.last_total_loss(), total);
}

// Scaling by a power of two changes no bit; an infinite gradient skips the step.
TEST(DeviceStep, AScaledLossTrainsTheSame) {
  const auto trained = [](std::optional<optim::LossScalerOptions> scale) {
    TowerTrainerOptions options = tiny_options();
    options.devices.loss_scale = scale;
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 5});
    if (scale) {
      EXPECT_EQ(trainer.loss_scale()->scale, scale->automatic ? 2048 : 1024);
    }
    return trainer.parameters().values().clone();
  };
  const at::Tensor expected = trained(std::nullopt);
  EXPECT_LE(trained(optim::LossScalerOptions{.scale = 1024}).sub(expected).abs().max().item<double>(), 1e-6);
  const optim::LossScalerOptions automatic{.scale = 1024, .automatic = true, .raise_after = 4};
  EXPECT_LE(trained(automatic).sub(expected).abs().max().item<double>(), 1e-6);
}

TEST(DeviceStep, TheFirstReplicaTellsWhyStepsAreNotCaptured) {
  const auto told = [](const std::function<void(TowerTrainerOptions&)>& change) {
    TowerTrainerOptions options = tiny_options({}, 2);
    options.exchange.variable_update = "replicated";
    options.devices.accelerators = {std::make_shared<FakeAccelerator>(), std::make_shared<FakeAccelerator>()};
    options.devices.capture_steps = true;
    change(options);
    TowerTrainer trainer(options, tiny_source(240, 8, 2));
    testing::internal::CaptureStderr();
    trainer.train({.steps_per_epoch = 2});
    return testing::internal::GetCapturedStderr();
  };
  const std::string of_micro_steps = told([](TowerTrainerOptions& options) { options.micro_steps = 2; });
  const std::string of_hooks =
      told([](TowerTrainerOptions& options) { options.hooks.reduce_pre = [](int, nn::ParameterSet&) {}; });
  EXPECT_NE(of_micro_steps.find("steps are not captured: micro-steps are handed over one by one"), std::string::npos);
  EXPECT_NE(of_hooks.find("steps are not captured: hooks run in the middle of the step"), std::string::npos);
  for (const std::string& log : {of_micro_steps, of_hooks}) {
    EXPECT_EQ(log.find("not captured"), log.rfind("not captured")) << "once\n" << log;
  }
  EXPECT_EQ(told([](TowerTrainerOptions&) {}).find("not captured"), std::string::npos);
  const std::string of_input_hook =
      told([](TowerTrainerOptions& options) { options.hooks.input_pre = [](int, data::Batch&) {}; });
  const std::string of_update_hook =
      told([](TowerTrainerOptions& options) { options.hooks.update_pre = [](int, nn::ParameterSet&) {}; });
  for (const std::string& log : {of_input_hook, of_update_hook}) {
    EXPECT_NE(log.find("steps are not captured: hooks run in the middle of the step"), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace trainyard::train::device_step_test
