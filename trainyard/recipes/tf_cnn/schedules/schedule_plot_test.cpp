#include "trainyard/recipes/tf_cnn/schedules/schedule_plot.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/testing/golden.h"
#include "trainyard/optim/schedules/decay.h"

namespace trainyard::recipes {
namespace {

constexpr int64_t kSteps = 200;

ScheduleFacts facts(int64_t steps = kSteps) {
  return {.train_examples = 160, .examples_per_step = 8, .steps = steps};
}

// A warm-up of 2 epochs, then two rates.
RunSchedule stepped() {
  return {.name = "piecewise",
          .learning_rate = optim::with_warmup(optim::piecewise({119}, {0.5, 0.25}), 0.5, 40),
          .warmup_steps = 40,
          .boundaries = {120}};
}

TEST(SchedulePlot, SaysWhatTheScheduleDoes) {
  EXPECT_EQ(plot_schedule("t", stepped(), facts()).lines,
            "Learning rate: piecewise, 200 steps (10.00 epochs)\n"
            "Warm-up: the first 40 steps (2.00 epochs)\n"
            "Boundaries: step 120 (epoch 6.00)\n"
            "Minimum 0 at step 0 (epoch 0.00); maximum 0.5 at step 40 (epoch 2.00)\n");
  EXPECT_EQ(plot_schedule("t", {.name = "constant", .learning_rate = optim::constant(0.1)}, facts()).lines,
            "Learning rate: constant, 200 steps (10.00 epochs)\n"
            "Warm-up: none\n"
            "Boundaries: none\n"
            "Minimum 0.1 at step 0 (epoch 0.00); maximum 0.1 at step 0 (epoch 0.00)\n");
}

TEST(SchedulePlot, DrawsRateAgainstStepAndEpoch) {
  EXPECT_TRUE(core::matches_golden(plot_schedule("resnet20 on cifar10", stepped(), facts()).svg,
                                   "trainyard/recipes/testdata/schedule.svg"));
}

TEST(SchedulePlot, DrawsMomentumWhereItIsScheduled) {
  const optim::OneCycle cycle{.rate = 0.4, .steps = kSteps};
  const SchedulePlot plot = plot_schedule("t",
                                          {.name = "one_cycle",
                                           .learning_rate = optim::one_cycle(cycle),
                                           .momentum = optim::one_cycle_momentum(cycle),
                                           .boundaries = optim::one_cycle_boundaries(cycle)},
                                          facts());
  EXPECT_NE(plot.svg.find(">learning rate</text>"), std::string::npos);
  EXPECT_NE(plot.svg.find(">momentum</text>"), std::string::npos);
  EXPECT_NE(plot.lines.find("Momentum: minimum 0.85 at step 59 (epoch 2.95); maximum 0.95 at step 0 (epoch 0.00)\n"),
            std::string::npos)
      << plot.lines;
  EXPECT_EQ(plot_schedule("t", stepped(), facts()).svg.find(">momentum<"), std::string::npos);
}

// A run of a hundred thousand steps: the picture is small, and has the top of each restart.
TEST(SchedulePlot, KeepsTheExtremesOfALongRun) {
  const int64_t steps = 100'000;
  const optim::CosineRestarts restarts{.rate = 1, .period = 12'345};
  const SchedulePlot plot = plot_schedule("t",
                                          {.name = "cosine_restarts",
                                           .learning_rate = optim::cosine_restarts(restarts),
                                           .boundaries = optim::restart_steps(restarts, steps, 20)},
                                          facts(steps));
  EXPECT_LT(plot.svg.size(), 40'000U);
  const size_t begin = plot.svg.find("points=\"") + 8;
  const std::string points = plot.svg.substr(begin, plot.svg.find('"', begin) - begin);
  // The upper edge of the panel: the picture's y of 1.
  int tops = 0;
  for (size_t at = points.find(",64.0"); at != std::string::npos; at = points.find(",64.0", at + 1)) ++tops;
  EXPECT_GE(tops, 9) << points;
  // Runs of more steps than are read have those of their boundaries.
  const SchedulePlot longest =
      plot_schedule("t",
                    {.name = "piecewise",
                     .learning_rate = optim::piecewise({999'999'998, 999'999'999}, {0.5, 0.7, 0.1}),
                     .boundaries = {999'999'999, 1'000'000'000}},
                    facts(3'000'000'000));
  EXPECT_NE(longest.lines.find("maximum 0.7 at step 999999999 "), std::string::npos) << longest.lines;
}

}  // namespace
}  // namespace trainyard::recipes
