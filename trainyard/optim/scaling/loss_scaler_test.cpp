#include "trainyard/optim/scaling/loss_scaler.h"

#include <iterator>
#include <limits>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::optim::loss_scaler_test {
namespace {

at::Tensor gradients(double value) {
  at::Tensor all = at::full({32}, 1.0, at::kFloat);
  all[17] = value;
  return all;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LossScaler, HalvesSkipsAndDoublesAsUpstream) {
  LossScaler scaler({.scale = 8, .automatic = true, .raise_after = 2});
  StepState state;
  // The scale before, whether a gradient is infinite, then what the optimizer sees.
  struct Row {
    double scale;
    bool infinite;
  };
  const Row rows[] = {{8, false}, {8, false}, {8, false}, {16, true}, {8, true},
                      {4, false}, {4, false}, {4, false}, {8, false}};
  for (const Row& row : rows) {
    EXPECT_EQ(scaler.scale().item<double>(), row.scale);
    scaler.end_step(gradients(row.infinite ? kInfinity : 3.0), state);
    EXPECT_EQ(state.read().inverse_loss_scale, 1 / row.scale);
    EXPECT_EQ(state.read().found_inf, row.infinite);
  }
}

TEST(LossScaler, NotANumberCountsAsInfinite) {
  LossScaler scaler({.scale = 8, .automatic = true});
  StepState state;
  scaler.end_step(gradients(std::numeric_limits<double>::quiet_NaN()), state);
  EXPECT_TRUE(state.read().found_inf);
  EXPECT_EQ(scaler.scale().item<double>(), 4);
}

TEST(LossScaler, AFixedScaleStaysAndSeesNothing) {
  LossScaler scaler({.scale = 128});
  StepState state;
  scaler.end_step(gradients(kInfinity), state);
  EXPECT_FALSE(state.read().found_inf);
  EXPECT_EQ(state.read().inverse_loss_scale, 1 / 128.0);
  EXPECT_EQ(scaler.scale().item<double>(), 128);
}

// What another process has found turns a clean step into a bad one; a step that was bad already stays one.
TEST(LossScaler, AnEndedStepIsSkippedAsIfItsOwnGradientsWereInfinite) {
  for (const LossScaleRule rule : {LossScaleRule::kTensorFlow, LossScaleRule::kTorch, LossScaleRule::kPaddle}) {
    const LossScalerOptions options{.scale = 2, .automatic = true, .rule = rule, .raise_after = 2};
    LossScaler own(options), told(options);
    StepState state;
    for (const bool bad : {false, true, true, false, false, false, true}) {
      own.end_step(gradients(bad ? kInfinity : 1), state);
      const StepValues expected = state.read();
      told.end_step(gradients(1), state);
      if (bad) told.skip_ended_step(state);
      EXPECT_EQ(state.read().found_inf, bad);
      EXPECT_EQ(state.read().inverse_loss_scale, expected.inverse_loss_scale);
      EXPECT_EQ(told.scale().item<double>(), own.scale().item<double>());
      EXPECT_EQ(told.clean_steps().item<double>(), own.clean_steps().item<double>());
      if (bad) told.skip_ended_step(state);
      EXPECT_EQ(told.scale().item<double>(), own.scale().item<double>()) << "once";
    }
  }
}

// Stopped in the middle of its counts, of clean steps and of bad ones.
TEST(LossScaler, GoesOnWhereItWasSaved) {
  for (const LossScaleRule rule : {LossScaleRule::kTensorFlow, LossScaleRule::kTorch, LossScaleRule::kPaddle}) {
    const LossScalerOptions options{.scale = 2, .automatic = true, .rule = rule, .raise_after = 3, .lower_after = 3};
    const bool bad[] = {false, false, true, true, false, false, true, true, true, true, false, false, false, false};
    for (size_t stop = 0; stop < std::size(bad); ++stop) {
      LossScaler straight(options), resumed(options);
      StepState state;
      core::MemoryState saved;
      for (size_t step = 0; step < std::size(bad); ++step) {
        if (step == stop) {
          straight.save(saved);
          EXPECT_EQ(saved.names().size(), 4U);
          resumed.load(saved);
        }
        straight.end_step(gradients(bad[step] ? kInfinity : 1), state);
        const StepValues expected = state.read();
        if (step < stop) continue;
        resumed.end_step(gradients(bad[step] ? kInfinity : 1), state);
        EXPECT_EQ(state.read().inverse_loss_scale, expected.inverse_loss_scale);
        EXPECT_EQ(resumed.scale().item<double>(), straight.scale().item<double>()) << stop << " " << step;
        EXPECT_EQ(resumed.clean_steps().item<double>(), straight.clean_steps().item<double>());
        EXPECT_EQ(resumed.skips_at_floor().item<double>(), straight.skips_at_floor().item<double>());
      }
    }
  }
}

// Under a scale of at most 1. Paddle's scale falls after two bad steps; its factor is 0.8.
TEST(LossScaler, CountsTheStepsThatItSkipsAtItsFloor) {
  LossScaler scaler({.scale = 1, .automatic = true, .rule = LossScaleRule::kPaddle});
  StepState state;
  const auto counts = [&] {
    std::vector<double> all;
    for (const at::Tensor& each : {scaler.scale(), scaler.clean_steps(), scaler.skips_at_floor()}) {
      all.push_back(each.item<double>());
    }
    return all;
  };
  EXPECT_EQ(counts(), (std::vector<double>{1, 0, 0}));
  for (int bad = 1; bad <= 5; ++bad) {
    scaler.end_step(gradients(kInfinity), state);
    EXPECT_EQ(counts(), (std::vector<double>{1, 0, static_cast<double>(bad)}));
  }
  scaler.end_step(gradients(1), state);
  EXPECT_EQ(counts(), (std::vector<double>{1, 1, 0}));
}

// A checkpoint of before the rules.
TEST(LossScaler, AStateWithoutBadStepsBeginsWithNone) {
  LossScaler scaler({.automatic = true, .rule = LossScaleRule::kPaddle});
  StepState state;
  scaler.end_step(gradients(kInfinity), state);
  core::MemoryState saved;
  core::StateWriter& writer = saved;
  writer.tensor("scale", LossScaler({.scale = 64}).scale());
  writer.tensor("clean_steps", LossScaler({.scale = 5}).scale());
  scaler.load(saved);
  scaler.end_step(gradients(kInfinity), state);
  EXPECT_EQ(scaler.scale().item<double>(), 64) << "one bad step, not two";
  scaler.end_step(gradients(kInfinity), state);
  EXPECT_LT(scaler.scale().item<double>(), 64);
}

TEST(LossScaler, BeginsAsItsRuleSays) {
  const auto first = [](const char* rule) {
    return LossScalerOptions{.rule = loss_scale_rule_from_name(rule)}.first_scale();
  };
  EXPECT_EQ(first("tensorflow"), 128);
  EXPECT_EQ(first("torch"), 65536);
  EXPECT_EQ(first("paddle"), 32768);
  EXPECT_THROW(loss_scale_rule_from_name("keras"), core::Error);
}

// A scale that is given and does not move is that of the run, not that of the checkpoint.
TEST(LossScaler, AGivenScaleThatDoesNotMoveOutlivesLoading) {
  core::MemoryState saved;
  LossScaler({.scale = 64, .automatic = true}).save(saved);
  LossScaler given({.scale = 8}), moves({.scale = 8, .automatic = true}), own(LossScalerOptions{});
  for (LossScaler* each : {&given, &moves, &own}) each->load(saved);
  EXPECT_EQ(given.scale().item<double>(), 8);
  EXPECT_EQ(moves.scale().item<double>(), 64);
  EXPECT_EQ(own.scale().item<double>(), 64);
}

// Each at its edge, with what is wrong.
TEST(LossScaler, SaysWhichNumberMakesNoSense) {
  const auto refused = [](const LossScalerOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(refused({.scale = 1e39}),
            "the loss scale is not usable: expected a finite number above 0 that a 32-bit float holds, got 1e+39");
  EXPECT_EQ(refused({.raise_after = 0}),
            "the number of steps between two rises of the loss scale is not usable: expected at least 1, got 0");
  EXPECT_EQ(refused({.lower_after = 0}),
            "the number of bad steps after which the loss scale falls is not usable: expected at least 1, got 0");
  EXPECT_EQ(refused({.raise_factor = 0.5}),
            "the factor by which the loss scale rises is not usable: expected a finite number, at least 1, got 0.5");
  EXPECT_EQ(refused({.lower_factor = 0}),
            "the factor by which the loss scale falls is not usable: expected one in (0, 1), got 0");
  EXPECT_EQ(refused({.lower_factor = 1}),
            "the factor by which the loss scale falls is not usable: expected one in (0, 1), got 1");
  EXPECT_EQ(refused({.most_skips_at_floor = -1}),
            "the number of skipped steps under a loss scale of 1 that ends a run is not usable: expected at least 0, "
            "got -1");
  EXPECT_EQ(refused({.raise_after = 1, .lower_after = 1, .raise_factor = 1.0, .most_skips_at_floor = 0}), "no error");
}

TEST(LossScaler, RefusesScalesThatMakeNoSense) {
  for (const double scale : {0.0, -1.0, kInfinity}) EXPECT_THROW(LossScaler({.scale = scale}), core::Error);
  EXPECT_THROW(LossScaler({.scale = 1e39}), core::Error);
  EXPECT_THROW(LossScaler({.raise_after = 0}), core::Error);
  EXPECT_THROW(LossScaler({.lower_after = 0}), core::Error);
  EXPECT_THROW(LossScaler({.raise_factor = 0.5}), core::Error);
  EXPECT_THROW(LossScaler({.lower_factor = 1.0}), core::Error);
  EXPECT_THROW(LossScaler({.most_skips_at_floor = -1}), core::Error);
}

// Two costs: each is skipped by itself, the step is one, and bad where one of them is.
TEST(LossScaler, AStepOfSeveralCostsIsOne) {
  LossScaler scaler({.scale = 8, .automatic = true, .rule = LossScaleRule::kTorch, .raise_after = 2});
  StepState state;
  const auto turn = [&](double gradient, bool last) {
    scaler.end_step(gradients(gradient), state, last);
    return state.read().found_inf;
  };
  EXPECT_TRUE(turn(kInfinity, false));
  EXPECT_EQ(scaler.scale().item<double>(), 8) << "both costs of a step have one scale";
  EXPECT_FALSE(turn(3, true));
  EXPECT_EQ(scaler.scale().item<double>(), 4);
  EXPECT_EQ(scaler.clean_steps().item<double>(), 0);
  for (const double expected : {4.0, 8.0}) {
    EXPECT_FALSE(turn(3, false));
    EXPECT_FALSE(turn(3, true));
    EXPECT_EQ(scaler.scale().item<double>(), expected);
  }
  // Another process has found it in its first cost.
  turn(3, false);
  scaler.skip_ended_step(state);
  EXPECT_TRUE(state.read().found_inf);
  turn(3, true);
  EXPECT_EQ(scaler.scale().item<double>(), 4);
  // What a step has found that an error has ended between its costs is of no later one.
  turn(kInfinity, false);
  scaler.begin_step();
  turn(3, true);
  EXPECT_EQ(scaler.scale().item<double>(), 4);
}

}  // namespace
}  // namespace trainyard::optim::loss_scaler_test
