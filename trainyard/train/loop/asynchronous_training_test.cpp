// A trainer whose replicas give their gradients to a server (parallel/variable_update/asynchronous.h).
#include <cmath>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::asynchronous_training_test {
namespace {

TowerTrainerOptions asynchronous(int replicas) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.exchange.variable_update = "asynchronous";
  return options;
}

TEST(AsynchronousTraining, OfOneReplicaIsWhatTheOtherModesDo) {
  TowerTrainer asynchronous_trainer(asynchronous(1), tiny_source(80, 8)), other(tiny_options(), tiny_source(80, 8));
  for (TowerTrainer* trainer : {&asynchronous_trainer, &other}) trainer->train({.steps_per_epoch = 6});
  EXPECT_TRUE(asynchronous_trainer.parameters().values().equal(other.parameters().values()));
  for (size_t b = 0; b < other.parameters().buffer_count(); ++b) {
    const int index = static_cast<int>(b);
    EXPECT_TRUE(asynchronous_trainer.parameters().buffer(index).equal(other.parameters().buffer(index))) << b;
  }
  EXPECT_EQ(asynchronous_trainer.last_total_loss(), other.last_total_loss());
}

TEST(AsynchronousTraining, OfTwoReplicasLearnsAndGoesOn) {
  TowerTrainer trainer(asynchronous(2), tiny_source(80, 8, 2)), resumed(asynchronous(2), tiny_source(80, 8, 2));
  trainer.train({.steps_per_epoch = 1});
  const double first = trainer.last_base_loss();
  trainer.train({.steps_per_epoch = 30});
  EXPECT_LT(trainer.last_base_loss(), 0.8 * first);
  EXPECT_GT(trainer.last_total_loss(), trainer.last_base_loss());
  core::MemoryState saved;
  trainer.save(saved);
  EXPECT_EQ(saved.integer("asynchronous/updates"), 2 * trainer.global_step());
  resumed.load(saved);
  EXPECT_TRUE(resumed.parameters().values().equal(trainer.parameters().values()));
}

TEST(AsynchronousTraining, HasNoAutomaticLossScale) {
  TowerTrainerOptions options = asynchronous(2);
  options.devices.loss_scale = optim::LossScalerOptions{.automatic = true};
  EXPECT_THAT(core::message_of([&] { TowerTrainer(options, tiny_source(80, 8, 2)); }),
              testing::HasSubstr("automatic loss scale"));
}

}  // namespace
}  // namespace trainyard::train::asynchronous_training_test
