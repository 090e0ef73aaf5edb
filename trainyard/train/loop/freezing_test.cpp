// Parameters that are frozen and thawed while a training runs.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::freezing_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::map<std::string, at::Tensor> tensors_of(const TowerTrainer& trainer) {
  core::MemoryState state;
  trainer.save(state);
  std::map<std::string, at::Tensor> tensors;
  for (const char* prefix : {"model/", "optimizer/", "replica/"}) {
    for (const std::string& name : state.names(prefix)) tensors[name] = std::as_const(state).tensor(name);
  }
  return tensors;
}

bool is_head(const std::string& name) {
  return name.find("fc.") != std::string::npos;
}

// With momentum and decay, which move parameters without a gradient.
TEST(Freezing, KeepsTheBitsOfParametersSlotsAndStatistics) {
  for (const char* mode : {"parameter_server", "replicated", "independent"}) {
    TowerTrainerOptions options = tiny_options({}, 2);
    options.exchange.variable_update = mode;
    TowerTrainer trainer(options, tiny_source(240, 8, 2));
    trainer.train({.steps_per_epoch = 5});
    trainer.set_trainable("*", false);
    trainer.set_trainable("fc.*", true);
    EXPECT_THAT(trainer.frozen_parameters(), UnorderedElementsAre("conv.weight", "bn.weight", "bn.bias"));
    const auto before = tensors_of(trainer);
    trainer.train({.steps_per_epoch = 55, .starting_step = 5});
    const auto after = tensors_of(trainer);
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [name, tensor] : before) {
      EXPECT_EQ(tensor.equal(after.at(name)), !is_head(name)) << mode << ": " << name;
    }
    trainer.set_trainable("*", true);
    EXPECT_TRUE(trainer.frozen_parameters().empty());
    trainer.train({.steps_per_epoch = 56, .starting_step = 55});
    for (const auto& [name, tensor] : tensors_of(trainer)) EXPECT_FALSE(tensor.equal(after.at(name))) << name;
  }
}

TEST(Freezing, TrainsTheRestAsWithoutRateAndDecay) {
  // The body's rate 0 leaves its values; its norm still uses the batch, so there is none here.
  TowerTrainerOptions options = tiny_options({.batch_norm = false});
  const auto train = [&](const TowerTrainerOptions& asked, bool freeze) {
    TowerTrainer trainer(asked, tiny_source(240, 8));
    if (freeze) trainer.set_trainable("conv.*", false);
    trainer.train({.steps_per_epoch = 10});
    return trainer.parameters().values().clone();
  };
  const at::Tensor frozen = train(options, true);
  options.make_optimizer = [](nn::ParameterSet& set) {
    return optim::optimizers().get("tf_nesterov")(
        set, {.weight_decay = 1e-3, .groups = {{.pattern = "conv.*", .rate_factor = 0}}});
  };
  EXPECT_LT(frozen.sub(train(options, false)).abs().max().item<double>(), 1e-6);
}

TEST(Freezing, GoesOnAfterAResume) {
  const auto make = [] { return std::make_unique<TowerTrainer>(tiny_options(), tiny_source(240, 8)); };
  const auto whole = make();
  whole->set_trainable("conv.weight", false);
  whole->train({.steps_per_epoch = 3});
  core::MemoryState saved;
  whole->save(saved);
  whole->train({.steps_per_epoch = 6, .starting_step = 3});
  const auto resumed = make();
  resumed->set_trainable("fc.*", false);  // which the saved run had not
  resumed->load(saved);
  EXPECT_THAT(resumed->frozen_parameters(), ElementsAre("conv.weight"));
  resumed->train({.steps_per_epoch = 6, .starting_step = 3});
  EXPECT_TRUE(resumed->parameters().values().equal(whole->parameters().values()));
}

// A callback gets the trainer as what all trainers are.
TEST(Freezing, ByACallback) {
  class ThawAtEpoch : public Callback {
   public:
    std::string name() const override { return "thaw_at_epoch"; }
    void before_epoch(Trainer& trainer) override {
      trainer.set_trainable("conv.*", trainer.epoch() >= 2);
      frozen.push_back(static_cast<int>(trainer.frozen_parameters().size()));
    }
    std::vector<int> frozen;
  };
  const auto callback = std::make_shared<ThawAtEpoch>();
  TowerTrainer trainer(tiny_options(), tiny_source(240, 8));
  const at::Tensor before = tensors_of(trainer).at("model/conv.weight");
  trainer.add(callback);
  trainer.train({.steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_TRUE(tensors_of(trainer).at("model/conv.weight").equal(before));
  trainer.train({.steps_per_epoch = 3, .starting_epoch = 2, .max_epoch = 2});
  EXPECT_FALSE(tensors_of(trainer).at("model/conv.weight").equal(before));
  EXPECT_THAT(callback->frozen, ElementsAre(1, 0));
}

TEST(Freezing, IsRefusedByTrainersWithoutParameters) {
  class Idle : public Trainer {
    void run_step(StepView&) override {}
  };
  Idle idle;
  EXPECT_TRUE(idle.frozen_parameters().empty());
  EXPECT_THAT(core::message_of([&] { idle.set_trainable("*", false); }, core::ErrorCode::kUnsupported),
              HasSubstr("this trainer has no parameters that could be frozen"));
}

// What docs/howto/library.md says of a rate factor of 0: values stay, the norm goes on with the batches.
TEST(Freezing, IsMoreThanARateOfZero) {
  const auto train = [](bool freeze) {
    TowerTrainerOptions options = tiny_options();
    if (!freeze) {
      options.make_optimizer = [](nn::ParameterSet& set) {
        return optim::optimizers().get("sgd")(
            set, {.weight_decay = 1e-3,
                  .groups = {{.pattern = "conv.*", .rate_factor = 0}, {.pattern = "bn.*", .rate_factor = 0}}});
      };
    }
    auto trainer = std::make_unique<TowerTrainer>(options, tiny_source(240, 8));
    for (const char* pattern : {"conv.*", "bn.*"}) trainer->set_trainable(pattern, !freeze);
    const auto before = tensors_of(*trainer);
    trainer->train({.steps_per_epoch = 5});
    const auto after = tensors_of(*trainer);
    std::map<std::string, bool> moved;
    for (const auto& [name, tensor] : before) {
      if (name.starts_with("model/")) moved[name] = !tensor.equal(after.at(name));
    }
    return moved;
  };
  const std::map<std::string, bool> frozen = train(true), without_rate = train(false);
  for (const char* name : {"model/conv.weight", "model/bn.weight", "model/bn.bias"}) {
    EXPECT_FALSE(frozen.at(name)) << name;
    EXPECT_FALSE(without_rate.at(name)) << name;
  }
  for (const char* name : {"model/bn.running_mean", "model/bn.running_var"}) {
    EXPECT_FALSE(frozen.at(name)) << name;
    EXPECT_TRUE(without_rate.at(name)) << name;
  }
  EXPECT_TRUE(frozen.at("model/fc.weight"));
}

TEST(Freezing, WhatCannotBeIsRefused) {
  TowerTrainer trainer(tiny_options(), tiny_source(240, 8));
  EXPECT_THAT(core::message_of([&] { trainer.set_trainable("layer1.*", false); }, core::ErrorCode::kNotFound),
              HasSubstr("no parameter is named as 'layer1.*'"));
  EXPECT_THAT(core::message_of([&] { trainer.set_trainable("cnv.*", false); }, core::ErrorCode::kNotFound),
              HasSubstr("did you mean 'conv.*'? near are conv.weight"));
  trainer.set_trainable("*", false);
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }),
              HasSubstr("there is nothing to train: all parameters are frozen"));
  TowerTrainerOptions on_accelerator = tiny_options();
  on_accelerator.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  TowerTrainer other(on_accelerator, tiny_source(240, 8));
  EXPECT_EQ(core::message_of([&] { other.set_trainable("conv.*", false); }, core::ErrorCode::kUnsupported),
            "parameters cannot be frozen on accelerators yet");
}

// What a checkpoint names is frozen on all replicas, and nothing else is.
TEST(Freezing, ACheckpointSaysWhatIsFrozen) {
  core::MemoryState none, one, unknown;
  TowerTrainer plain(tiny_options({}, 2), tiny_source(240, 8, 2));
  for (core::MemoryState* const state : {&none, &one, &unknown}) plain.save(*state);
  one.text("trainer/frozen", "fc.weight\nconv.weight");
  unknown.text("trainer/frozen", "conv.weight\nfc.wait");
  TowerTrainer trainer(tiny_options({}, 2), tiny_source(240, 8, 2));
  trainer.set_trainable("bn.*", false);
  trainer.load(one);
  EXPECT_THAT(trainer.frozen_parameters(), UnorderedElementsAre("conv.weight", "fc.weight"));
  trainer.load(none);
  EXPECT_TRUE(trainer.frozen_parameters().empty());
  EXPECT_EQ(core::message_of([&] { trainer.load(unknown); }, core::ErrorCode::kCorruptData),
            "trainer/frozen names a parameter that there is not: fc.wait");
}

}  // namespace
}  // namespace trainyard::train::freezing_test
