// Against the values of tf_cnn_benchmarks' own tests (ImageNet: 1,281,167 images), and closed forms.
#include "trainyard/optim/schedules/learning_rate.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/optim/testing/golden_schedules.h"

namespace trainyard::optim::learning_rate_test {
namespace {

constexpr double kImageNet = 1281167;

void expect_rates(const LearningRate& rate, const std::vector<std::pair<int64_t, double>>& oracle) {
  for (const auto& [step, expected] : oracle) EXPECT_NEAR(rate(step), expected, 1e-12 + expected * 1e-12) << step;
}

// tf_cnn_benchmarks' rates of a ResNet at a batch of 256 images.
TEST(LearningRate, FallsAtEpochs) {
  const EpochSchedule resnet{
      .rate = 0.128, .boundary_epochs = {30, 60, 80, 90}, .factors = {1, 0.1, 0.01, 0.001, 0.0001}, .warmup_epochs = 5};
  const LearningRate rate = by_epochs(resnet, kImageNet / 256);
  expect_rates(
      rate, {{0, 0.0}, {150136, 0.128}, {150137, 0.0128}, {300273, 0.0128}, {300274, 0.00128}, {10000000, 0.0000128}});
  EXPECT_NEAR(rate(12511), 0.064, 1e-12) << "half of the warm-up";
}

TEST(LearningRate, ByEpochsWithoutBoundariesIsConstant) {
  expect_rates(by_epochs({.rate = 0.4}, 10), {{0, 0.4}, {1000, 0.4}});
}

// CIFAR ResNets of tf_cnn_benchmarks: 0.1, 0.01, 0.001, 0.0002 changing at epochs 82, 123 and 300 of 50,000 images.
TEST(LearningRate, FallsAtTheEpochsOfCifarResnets) {
  const LearningRate rate =
      by_epochs({.rate = 0.1, .boundary_epochs = {82, 123, 300}, .factors = {1, 0.1, 0.01, 0.002}}, 50000.0 / 128);
  expect_rates(rate, {{0, 0.1}, {32031, 0.1}, {32032, 0.01}, {48046, 0.01}, {48047, 0.001}, {117188, 0.0002}});
}

// tf_cnn_benchmarks, resnet_model_test.
TEST(LearningRate, ScalesWithTheBatch) {
  EXPECT_DOUBLE_EQ(scaled_rate(0.05, 256, 256), 0.05);
  EXPECT_DOUBLE_EQ(scaled_rate(0.128, 256, 128), 0.064);
  EXPECT_DOUBLE_EQ(scaled_rate(0.128, 256, 2048, 8), 0.128);
  EXPECT_DOUBLE_EQ(scaled_rate(0.128, 256, 512), 0.256);
  EXPECT_DOUBLE_EQ(scaled_rate(0.128, 256, 13, 2), 0.00325);
}

TEST(LearningRate, ConstantAndItsWarmup) {
  expect_rates(constant(1.0), {{0, 1.0}, {10000000, 1.0}});
  const auto warmup_steps = static_cast<int64_t>(kImageNet / 256 * 5);
  expect_rates(with_warmup(constant(1.0), 1.0, warmup_steps), {{0, 0.0}, {12511, 0.5}, {25022, 1.0}, {10000000, 1.0}});
}

TEST(LearningRate, WarmupReplacesTheSchedule) {
  // tf_cnn_benchmarks multiplies a schedule by nothing: below the end of warm-up its own value does not show.
  const LearningRate rate = with_warmup(piecewise({1, 3}, {8.0, 4.0, 2.0}), 8.0, 4);
  expect_rates(rate, {{0, 0.0}, {1, 2.0}, {2, 4.0}, {3, 6.0}, {4, 2.0}});
}

TEST(LearningRate, PiecewiseChangesAfterItsBoundary) {
  expect_rates(piecewise(parse_piecewise("1;3;.1;5;.01"), kImageNet / 32),
               {{0, 1.0}, {120108, 1.0}, {120109, 0.1}, {200181, 0.1}, {200182, 0.01}, {100000000, 0.01}});
  expect_rates(piecewise(parse_piecewise("0.25"), 100), {{0, 0.25}, {1000, 0.25}});
}

// NVIDIA DALI's example of a ResNet in TensorFlow: boundaries are steps an epoch times epochs, as Keras takes them, and
// the step that equals one still has the old rate; in front of them a warm-up of 5 epochs.
TEST(LearningRate, KerasBoundariesAreThoseOfEpochs) {
  EpochSchedule keras{.rate = 0.1, .boundary_epochs = {30, 60, 80}, .factors = {1, 0.1, 0.01, 0.001}};
  expect_golden("keras_piecewise", by_epochs(keras, 13), 0.1);
  keras.warmup_epochs = 5;
  expect_rates(by_epochs(keras, 13), {{0, 0.0}, {13, 0.02}, {64, 0.1 * 64 / 65}, {65, 0.1}, {390, 0.1}, {391, 0.01}});
}

// NVIDIA DALI's example of a ResNet in Paddle: LinearWarmup from warmup_start_lr, then a cosine over what is left.
TEST(LearningRate, PaddlesWarmupBeginsWhereItIsTold) {
  constexpr int64_t kEpoch = 10, kWarmup = 5 * kEpoch, kAll = 90 * kEpoch;
  const LearningRate rate = with_warmup(cosine(0.256, kAll, kWarmup), 0.256, kWarmup, 0.016);
  expect_rates(rate, {{0, 0.016}, {25, 0.136}, {49, 0.016 + 0.24 * 49 / 50}, {50, 0.256}, {475, 0.128}, {900, 0.0}});
  expect_golden("paddle_warmup_cosine", with_warmup(cosine(0.256, 77, 35), 0.256, 35, 0.016));
  // Any schedule begins behind the warm-up.
  expect_golden("paddle_warmup_step", with_warmup(delayed(exponential_staircase(0.256, 9, 0.3, 0), 6), 0.256, 6));
  // A boundary of Paddle's is the first step of the next piece.
  expect_golden("paddle_piecewise", piecewise({12, 25, 38}, {0.1, 0.01, 0.001, 0.0001}));
}

TEST(LearningRate, AWarmupMayMultiply) {
  // PyTorch's LinearLR, chained with a StepLR.
  expect_golden("torch_warmup_times_step", times_warmup(piecewise({5, 11, 17}, {0.4, 0.12, 0.036, 0.0108}), 8, 0.25));
  expect_rates(times_warmup(piecewise({1, 3}, {8.0, 4.0, 2.0}), 4), {{0, 0.0}, {1, 2.0}, {2, 2.0}, {3, 3.0}, {4, 2.0}});
}

TEST(LearningRate, ADelayedScheduleWaitsAtItsFirstValue) {
  expect_rates(delayed(piecewise({1, 3}, {8.0, 4.0, 2.0}), 10), {{0, 8.0}, {11, 8.0}, {12, 4.0}, {13, 4.0}, {14, 2.0}});
  expect_rates(delayed(piecewise({0, 1}, {8.0, 4.0, 2.0}), 1), {{0, 8.0}, {1, 8.0}, {2, 4.0}, {3, 2.0}});
  expect_rates(delayed(piecewise({0, 1}, {8.0, 4.0, 2.0}), 0), {{0, 8.0}, {1, 4.0}, {2, 2.0}});
}

TEST(LearningRate, ScalesWithTheRootOfTheBatch) {
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 256, 1024, 1, BatchScaling::kSquareRoot), 0.2);
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 256, 64, 1, BatchScaling::kSquareRoot), 0.05);
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 256, 4096, 4, BatchScaling::kSquareRoot), 0.1);
}

TEST(LearningRate, BadSchedulesAreRefusedWithUpstreamsTexts) {
  const auto problem = [](const char* schedule) { return core::problem_of([&] { parse_piecewise(schedule); }); };
  EXPECT_EQ(problem("1;3"), "--piecewise_learning_rate_schedule must have an odd number of components");
  EXPECT_EQ(problem("1;3;x"), "Invalid learning rate: x");
  EXPECT_EQ(problem("1;2.5;2"), "Invalid epoch: 2.5");
  EXPECT_EQ(problem(""), "Invalid learning rate: ''");
  EXPECT_EQ(problem("-2"), "Invalid learning rate: -2");
  EXPECT_EQ(problem("1;3;-.1"), "Invalid learning rate: -.1");
  EXPECT_EQ(problem("1;3;.1;5;inf"), "Invalid learning rate: inf");
}

// What is wrong stands in the schedule as it was given, not in the steps that were made of it.
TEST(LearningRate, ABadScheduleSaysWhichComponentItIs) {
  const std::string place = " of --piecewise_learning_rate_schedule";
  const auto error = [](const char* schedule) { return core::thrown_by([&] { parse_piecewise(schedule); }); };
  EXPECT_EQ(error("1;3").detail().actual, "1;3, of 2 components");
  EXPECT_EQ(error("a;3;.1").detail().where, "component 1" + place);
  EXPECT_EQ(error("1;3;.1;5;nan").detail().where, "component 5" + place);
  EXPECT_EQ(error("1;3;-.1").detail().where, "component 3" + place);
  EXPECT_EQ(error("1;;.1").detail().where, "component 2" + place);
  EXPECT_EQ(error("1;;.1").detail().actual, "nothing");
  EXPECT_EQ(error("1;3;.1;").detail().actual, "1;3;.1;, of 4 components");
  const core::Error descends = error("1;3;.1;2;.01");
  EXPECT_EQ(descends.detail().problem, "the epochs of a piecewise learning rate must ascend");
  EXPECT_EQ(descends.detail().where, "component 4" + place);
  EXPECT_EQ(descends.detail().expected, "at least 3, the one before");
  EXPECT_EQ(descends.detail().actual, "2");
  EXPECT_EQ(error("1;-3;.1").detail().where, "component 2" + place);
  EXPECT_EQ(error("1;-3;.1").detail().expected, "an epoch of at least 0");
  EXPECT_EQ(error("1;-3;.1").detail().actual, "-3");
  EXPECT_EQ(error("1;3;-.1").detail().expected, "a finite number, at least 0");
}

TEST(LearningRate, EpochsOfAScheduleMayBeEqualAndTheFirstOne) {
  const PiecewiseEpochs read = parse_piecewise("1;0;.5;3;.1;3;.01");
  EXPECT_EQ(read.boundary_epochs, (std::vector<int64_t>{0, 3, 3}));
  EXPECT_EQ(read.rates, (std::vector<double>{1, .5, .1, .01}));
  expect_rates(piecewise(read, 10), {{0, .5}, {29, .5}, {30, .01}});
}

TEST(LearningRate, EpochsBeyondAllStepsAreNeverReached) {
  expect_rates(piecewise(parse_piecewise("1;9223372036854775807;.1"), 1e9), {{0, 1.0}, {int64_t{1} << 60, 1.0}});
  expect_rates(by_epochs({.rate = 1, .warmup_epochs = 1e300}, 10), {{0, 0.0}, {1000, 1000 / 4e18}});
}

TEST(LearningRate, WhatIsRefusedSaysItsNumbers) {
  EXPECT_THAT(core::message_of([] { return scaled_rate(0.1, 256, 0, 3); }),
              core::Says("the batch of a learning rate", "at least 1", "got 0 images for 256 over 3 replicas"));
  EXPECT_THAT(core::message_of([] { return scaled_rate(0.1, 0, 64, 1); }),
              core::Says("at least 1", "got 64 images for 0 over 1 replicas"));
  EXPECT_THAT(core::message_of([] { return scaled_rate(0.1, 256, 64, 0); }),
              core::Says("at least 1", "got 64 images for 256 over 0 replicas"));
  EXPECT_THAT(core::message_of([] {
                return piecewise({1, 2}, {1.0, 0.1});
              }),
              core::Says("one rate more than boundaries", "expected 3", "got 2"));
  EXPECT_THAT(core::message_of([] {
                return piecewise({5, 3}, {1.0, 0.1, 0.01});
              }),
              core::Says("must ascend", "got 5, 3"));
  EXPECT_THAT(core::message_of([] { return times_warmup(constant(1), 5, -0.5); }),
              core::Says("a warm-up starts with", "one in [0, 1]", "got -0.5"));
  expect_rates(piecewise({5, 5}, {1.0, 0.1, 0.01}), {{5, 1.0}, {6, 0.01}});
  expect_rates(times_warmup(constant(1), 4, 0), {{0, 0.0}, {1, 0.25}, {4, 1.0}});
  expect_rates(times_warmup(constant(1), 4, 1), {{0, 1.0}, {3, 1.0}});
}

TEST(LearningRate, SaysWhichRateItRefuses) {
  const std::string range = " is not usable: expected a finite number, at least 0, got ";
  EXPECT_EQ(core::message_of([] { return constant(-0.5); }), "the learning rate" + range + "-0.5");
  EXPECT_EQ(core::message_of([] { return constant(0); }), "no error");
  EXPECT_EQ(core::message_of([] { return scaled_rate(-1, 256, 64); }), "the base learning rate" + range + "-1");
  EXPECT_EQ(scaled_rate(0, 256, 64), 0);
  EXPECT_EQ(core::message_of([] { return with_warmup(constant(1), -1, 5); }),
            "the learning rate after warm-up" + range + "-1");
  EXPECT_EQ(core::message_of([] { return with_warmup(constant(1), 1, 5, -2); }),
            "the learning rate that a warm-up starts with" + range + "-2");
  EXPECT_EQ(core::message_of([] { return with_warmup(constant(0), 0, 5, 0); }), "no error");
  EXPECT_EQ(core::message_of([] {
              return piecewise({1}, {1.0, -3.0});
            }),
            "a piece of the learning rate" + range + "-3");
}

TEST(LearningRate, StepsOfEpochsHaveABound) {
  EXPECT_EQ(whole_steps(10.5, 3), 31);
  EXPECT_EQ(whole_steps(1e10, 1e10), 4'000'000'000'000'000'000);
  EXPECT_EQ(whole_steps(1e10, -1e10), -4'000'000'000'000'000'000);
}

TEST(LearningRate, APiecewiseScheduleMayHaveBlanks) {
  expect_rates(piecewise(parse_piecewise(" 1 ; 3  ;  .1 "), 10), {{0, 1.0}, {29, 1.0}, {30, 0.1}});
}

TEST(LearningRate, ValuesThatCannotBeAreRefused) {
  EXPECT_NE(core::message_of([] { constant(std::nan("")); }), "no error");
  EXPECT_NE(core::message_of([] { constant(-0.1); }), "no error");
  EXPECT_NE(core::message_of([] { piecewise({1}, {1.0}); }), "no error");
  EXPECT_NE(core::message_of([] { piecewise({5, 3}, {1.0, 0.1, 0.01}); }), "no error");
  EXPECT_NE(core::message_of([] { with_warmup(constant(1), 1, 5, -1); }), "no error");
  EXPECT_NE(core::message_of([] { times_warmup(constant(1), 5, 1.5); }), "no error");
  EXPECT_NE(core::message_of([] { piecewise(parse_piecewise("1"), 0.0); }), "no error");
  EXPECT_NE(core::message_of([] { scaled_rate(0.1, 256, 0); }), "no error");
}

}  // namespace
}  // namespace trainyard::optim::learning_rate_test
