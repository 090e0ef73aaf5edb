// Each flag of the learning rate reaches its option; which of them go together, flag_errors_test.cpp says.
#include "trainyard/frontends/options/learning_rate_options.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::learning_rate_options_test {
namespace {

LearningRateOptions read(const std::vector<std::string>& arguments) {
  return read_learning_rate(core::parse_flags(tf_cnn_flags(), arguments));
}

TEST(LearningRateOptions, EachFlagReachesItsOption) {
  const LearningRateOptions options =
      read({"--init_learning_rate=0.5", "--learning_rate_schedule=cosine_restarts", "--num_epochs_per_decay=3",
            "--learning_rate_decay_factor=0.25", "--minimum_learning_rate=0.125", "--num_learning_rate_warmup_epochs=2",
            "--learning_rate_warmup=multiply", "--warmup_learning_rate=0.0625", "--learning_rate_updates=epoch",
            "--restart_period_factor=1.5", "--polynomial_power=2.5", "--polynomial_cycle",
            "--num_learning_rate_cooldown_epochs=4", "--learning_rate_scaling=sqrt",
            "--learning_rate_base_batch_size=128", "--resnet_base_lr=0.75"});
  EXPECT_EQ(options.init_learning_rate, 0.5);
  EXPECT_EQ(options.schedule, "cosine_restarts");
  EXPECT_EQ(options.num_epochs_per_decay, 3);
  EXPECT_EQ(options.decay_factor, 0.25);
  EXPECT_EQ(options.minimum, 0.125);
  EXPECT_EQ(options.warmup_epochs, 2);
  EXPECT_EQ(options.warmup, LearningRateOptions::Warmup::kMultiply);
  EXPECT_EQ(options.warmup_start, 0.0625);
  EXPECT_TRUE(options.changes_by_epoch);
  EXPECT_EQ(options.restart_period_factor, 1.5);
  EXPECT_EQ(options.polynomial_power, 2.5);
  EXPECT_TRUE(options.polynomial_cycle);
  EXPECT_EQ(options.cooldown_epochs, 4);
  EXPECT_EQ(options.scaling, optim::BatchScaling::kSquareRoot);
  EXPECT_EQ(options.scaling_batch_size, 128);
  EXPECT_EQ(options.resnet_base_lr, 0.75);
  EXPECT_FALSE(options.cycle_momentum);
}

TEST(LearningRateOptions, OfOneCycle) {
  const LearningRateOptions options =
      read({"--learning_rate_schedule=one_cycle", "--one_cycle_rise=0.375", "--one_cycle_shape=linear",
            "--one_cycle_start_divisor=10", "--one_cycle_end_divisor=100", "--one_cycle_three_phases",
            "--one_cycle_momentum=0.75,0.875"});
  EXPECT_EQ(options.schedule, "one_cycle");
  EXPECT_EQ(options.one_cycle.rise, 0.375);
  EXPECT_EQ(options.one_cycle.shape, optim::OneCycle::Shape::kLinear);
  EXPECT_EQ(options.one_cycle.start_divisor, 10);
  EXPECT_EQ(options.one_cycle.end_divisor, 100);
  EXPECT_TRUE(options.one_cycle.three_phases);
  EXPECT_TRUE(options.cycle_momentum);
  EXPECT_EQ(options.one_cycle.least_momentum, 0.75);
  EXPECT_EQ(options.one_cycle.most_momentum, 0.875);
}

TEST(LearningRateOptions, WhatIsNotGivenIsAsByDefault) {
  const LearningRateOptions options = read({});
  EXPECT_EQ(options.init_learning_rate, std::nullopt);
  EXPECT_EQ(options.schedule, "auto");
  EXPECT_EQ(options.num_epochs_per_decay, 0);
  EXPECT_EQ(options.decay_factor, 0);
  EXPECT_EQ(options.minimum, 0);
  EXPECT_EQ(options.warmup_epochs, 0);
  EXPECT_EQ(options.warmup, LearningRateOptions::Warmup::kReplace);
  EXPECT_EQ(options.warmup_start, 0);
  EXPECT_FALSE(options.changes_by_epoch || options.polynomial_cycle || options.cycle_momentum);
  EXPECT_EQ(options.restart_period_factor, 1);
  EXPECT_EQ(options.polynomial_power, 1);
  EXPECT_EQ(options.cooldown_epochs, 0);
  EXPECT_EQ(options.scaling, std::nullopt);
  EXPECT_EQ(options.scaling_batch_size, 256);
  EXPECT_EQ(options.resnet_base_lr, std::nullopt);
  EXPECT_EQ(options.one_cycle.rise, 0.3);
  EXPECT_EQ(options.one_cycle.shape, optim::OneCycle::Shape::kCosine);
  EXPECT_EQ(options.one_cycle.start_divisor, 25);
  EXPECT_EQ(options.one_cycle.end_divisor, 1e4);
  EXPECT_FALSE(options.one_cycle.three_phases);
  EXPECT_EQ(options.one_cycle.least_momentum, 0.85);
  EXPECT_EQ(options.one_cycle.most_momentum, 0.95);
}

}  // namespace
}  // namespace trainyard::frontends::learning_rate_options_test
