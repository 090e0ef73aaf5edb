#include "trainyard/frontends/tf_cnn/schedules/schedule_plot.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/testing/golden.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::frontends::schedule_plot_test {
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
                                   "trainyard/frontends/testdata/schedule.svg"));
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

TEST(SchedulePlot, HasItsNumbersStepByStep) {
  const std::string csv = plot_schedule("t", stepped(), facts()).csv;
  const auto lines = static_cast<int64_t>(std::count(csv.begin(), csv.end(), '\n'));
  EXPECT_EQ(lines, 1 + kSteps);
  EXPECT_EQ(csv.rfind("step,epoch,learning_rate\n0,0,0\n1,0.05,0.0125\n", 0), 0U) << csv.substr(0, 80);
  EXPECT_NE(csv.find("\n39,1.95,0.4875\n40,2,0.5\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\n119,5.95,0.5\n120,6,0.25\n"), std::string::npos) << csv;
  EXPECT_TRUE(csv.ends_with("\n199,9.95,0.25\n")) << csv;
}

TEST(SchedulePlot, HasMomentumAmongItsNumbersWhereItIsScheduled) {
  const optim::OneCycle cycle{.rate = 0.4, .steps = kSteps};
  const std::string csv =
      plot_schedule(
          "t",
          {.name = "one_cycle", .learning_rate = optim::one_cycle(cycle), .momentum = optim::one_cycle_momentum(cycle)},
          facts())
          .csv;
  std::istringstream text(csv);
  std::string line;
  ASSERT_TRUE(std::getline(text, line));
  EXPECT_EQ(line, "step,epoch,learning_rate,momentum");
  const optim::Schedule rate = optim::one_cycle(cycle), momentum = optim::one_cycle_momentum(cycle);
  for (int64_t step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(std::getline(text, line));
    std::istringstream numbers(line);
    double at = 0, epoch = 0, is_rate = 0, is_momentum = 0;
    char comma = 0;
    numbers >> at >> comma >> epoch >> comma >> is_rate >> comma >> is_momentum;
    EXPECT_EQ(at, step);
    EXPECT_EQ(epoch, static_cast<double>(step) / 20);
    EXPECT_EQ(is_rate, rate(step));
    EXPECT_EQ(is_momentum, momentum(step));
  }
}

TEST(SchedulePlot, WritesNumbersBesideThePicture) {
  const auto paths = [](const std::string& path) {
    const SchedulePlotPaths both = schedule_plot_paths(path);
    return both.picture + " " + both.numbers;
  };
  EXPECT_EQ(paths("out/rate.svg"), "out/rate.svg out/rate.csv");
  EXPECT_EQ(paths("rate.csv"), "rate.svg rate.csv");
  EXPECT_EQ(paths("out.svg/rate"), "out.svg/rate out.svg/rate.csv");
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
                     .warmup_steps = 1500,
                     .boundaries = {999'999'999, 1'000'000'000}},
                    facts(3'000'000'000));
  EXPECT_NE(longest.lines.find("maximum 0.7 at step 999999999 "), std::string::npos) << longest.lines;
  // Each 3,000th step, those around the two boundaries and around the end of the warm-up, and the last one.
  EXPECT_EQ(std::count(longest.csv.begin(), longest.csv.end(), '\n'), 1 + 1'000'000 + 3 + 2 + 1);
  for (const char* step : {"3000", "999999998", "999999999", "1000000000", "1499", "1500", "2999999999"}) {
    EXPECT_NE(longest.csv.find(std::string("\n") + step + ","), std::string::npos) << step;
  }
}

}  // namespace
}  // namespace trainyard::frontends::schedule_plot_test
