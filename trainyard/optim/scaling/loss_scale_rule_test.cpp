// Each transition of each rule by which an automatic loss scale moves, on the plain state machine: TensorFlow's as
// tf_cnn_benchmarks has it, PyTorch's against torch.amp.GradScaler itself (tools/golden/loss_scale.py), Paddle's
// against its operator (tools/golden/paddle_training.py).
#include "trainyard/optim/scaling/loss_scale_rule.h"

#include <cfloat>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/optim/scaling/loss_scaler.h"

namespace trainyard::optim::loss_scale_rule_test {
namespace {

LossScaleSteps steps_of(LossScaleRule rule) {
  return LossScalerOptions{.rule = rule}.steps();
}

LossScale after(LossScale state, const LossScaleSteps& rule, bool found_inf, int64_t count = 1) {
  for (int64_t i = 0; i < count; ++i) state = next_loss_scale(state, found_inf, rule);
  return state;
}

void expect_state(const LossScale& state, double scale, double clean, double bad) {
  EXPECT_EQ(state.scale, scale);
  EXPECT_EQ(state.clean_steps, clean);
  EXPECT_EQ(state.bad_steps, bad);
}

TEST(LossScaleRule, TensorFlowsDoublesInTheStepThatFindsTheCounterFull) {
  LossScaleSteps rule = LossScalerOptions{.raise_after = 3}.steps();
  LossScale state = after({.scale = 8}, rule, false, 3);
  expect_state(state, 8, 3, 0);
  state = after(state, rule, false);
  expect_state(state, 16, 0, 0);
  state = after(state, rule, false, 2);
  state = after(state, rule, true);
  expect_state(state, 8, 0, 0);
  state = after(state, rule, true);
  expect_state(state, 4, 0, 0);
  expect_state(after({.scale = 1}, rule, true), 0.5, 0, 0);
  expect_state(after({.scale = 128}, steps_of(LossScaleRule::kTensorFlow), false, 1000), 128, 1000, 0);
  expect_state(after({.scale = 128}, steps_of(LossScaleRule::kTensorFlow), false, 1001), 256, 0, 0);
}

TEST(LossScaleRule, PyTorchsIsThatOfItsGradScaler) {
  std::map<std::string, LossScalerOptions> runs;
  runs["default"] = {.rule = LossScaleRule::kTorch};
  runs["random"] = {.scale = 1024, .rule = LossScaleRule::kTorch, .raise_after = 4};
  runs["factors"] = {
      .scale = 1000, .rule = LossScaleRule::kTorch, .raise_after = 5, .raise_factor = 1.7, .lower_factor = 0.3};
  runs["huge"] = {.scale = 0x1p125, .rule = LossScaleRule::kTorch, .raise_after = 1};
  std::map<std::string, LossScale> states;
  for (const auto& [name, options] : runs) states[name].scale = options.first_scale();
  int lines = 0;
  for (const std::string& line : core::golden_lines("trainyard/optim/testdata/loss_scale.txt")) {
    std::istringstream words(line);
    std::string name;
    bool bad = false, updated = false;
    int64_t count = 0;
    double scale = 0, clean = 0;
    words >> name >> bad >> count >> scale >> clean >> updated;
    ASSERT_TRUE(runs.contains(name)) << line;
    EXPECT_EQ(updated, !bad) << line;
    states[name] = after(states[name], runs[name].steps(), bad, count);
    EXPECT_EQ(states[name].scale, scale) << line;
    EXPECT_EQ(states[name].clean_steps, clean) << line;
    ++lines;
  }
  EXPECT_EQ(lines, 420);
}

TEST(LossScaleRule, PaddlesIsThatOfItsOperator) {
  std::map<std::string, LossScalerOptions> runs;
  runs["falls"] = {.scale = 3, .rule = LossScaleRule::kPaddle};
  runs["below_one"] = {.scale = 0.25, .rule = LossScaleRule::kPaddle};
  runs["random"] = {.rule = LossScaleRule::kPaddle, .raise_after = 4};
  runs["factors"] = {.scale = 1000,
                     .rule = LossScaleRule::kPaddle,
                     .raise_after = 3,
                     .lower_after = 3,
                     .raise_factor = 1.7,
                     .lower_factor = 0.55};
  runs["huge"] = {.scale = 0x1p125, .rule = LossScaleRule::kPaddle, .raise_after = 1};
  std::map<std::string, LossScale> states;
  for (const auto& [name, options] : runs) states[name].scale = options.first_scale();
  int lines = 0;
  for (const std::string& line : core::golden_lines("trainyard/optim/testdata/paddle_loss_scale.txt")) {
    std::istringstream words(line);
    bool infinite = false;
    std::string name;
    double scale = 0, good = 0, bad = 0;
    words >> name >> infinite >> scale >> good >> bad;
    ASSERT_TRUE(runs.contains(name)) << line;
    states[name] = after(states[name], runs[name].steps(), infinite);
    expect_state(states[name], scale, good, bad);
    ++lines;
  }
  EXPECT_EQ(lines, 558);
}

TEST(LossScaleRule, PaddlesBadStepsMustBeConsecutive) {
  const LossScaleSteps rule = steps_of(LossScaleRule::kPaddle);
  LossScale state = after({.scale = 1000}, rule, true);
  expect_state(state, 1000, 0, 1);
  state = after(state, rule, false);
  expect_state(state, 1000, 1, 0);
  state = after(state, rule, true);
  expect_state(state, 1000, 0, 1);
  state = after(state, rule, true);
  expect_state(state, static_cast<double>(1000.0F * 0.8F), 0, 0);
  state = after(state, rule, true);
  expect_state(state, static_cast<double>(1000.0F * 0.8F), 0, 1);
  state = after(state, rule, true);
  expect_state(state, static_cast<double>(1000.0F * 0.8F * 0.8F), 0, 0);
}

TEST(LossScaleRule, PaddlesDoublesAfterAThousandCleanSteps) {
  const LossScaleSteps rule = steps_of(LossScaleRule::kPaddle);
  LossScale state = after({.scale = 4}, rule, false, 999);
  expect_state(state, 4, 999, 0);
  expect_state(after(state, rule, true), 4, 0, 1);
  state = after(state, rule, false);
  expect_state(state, 8, 0, 0);
}

TEST(LossScaleRule, PaddlesDoesNotFallBelowOne) {
  const LossScaleSteps rule = steps_of(LossScaleRule::kPaddle);
  expect_state(after({.scale = 1.125}, rule, true, 2), 1, 0, 0);
  expect_state(after({.scale = 1}, rule, true, 20), 1, 0, 0);
  // One that begins lower keeps its value until it is lowered.
  expect_state(after({.scale = 0.25}, rule, true), 0.25, 0, 1);
  expect_state(after({.scale = 0.25}, rule, true, 2), 1, 0, 0);
}

TEST(LossScaleRule, NoneBecomesInfiniteOrNothing) {
  for (const LossScaleRule name : {LossScaleRule::kTensorFlow, LossScaleRule::kTorch, LossScaleRule::kPaddle}) {
    const LossScaleSteps rule = LossScalerOptions{.rule = name, .raise_after = 1}.steps();
    EXPECT_EQ(after({.scale = 1}, rule, false, 1000).scale, 0x1p127);
    const double least = after({.scale = 1}, rule, true, 1000).scale;
    EXPECT_EQ(least, name == LossScaleRule::kPaddle ? 1.0 : static_cast<double>(FLT_MIN));
  }
}

TEST(LossScaleRule, SkipsInARowAreCountedUnderAScaleOfOne) {
  for (const LossScaleRule name : {LossScaleRule::kTensorFlow, LossScaleRule::kTorch}) {
    const LossScaleSteps rule = steps_of(name);
    LossScale state = after({.scale = 4}, rule, true, 2);
    EXPECT_EQ(state.skips_at_floor, 0) << "under 4 and 2";
    state = after(state, rule, true, 3);
    EXPECT_EQ(state.skips_at_floor, 3);
    EXPECT_EQ(after(state, rule, false).skips_at_floor, 0);
  }
  EXPECT_EQ(after({.scale = 1}, steps_of(LossScaleRule::kPaddle), true, 7).skips_at_floor, 7);
}

}  // namespace
}  // namespace trainyard::optim::loss_scale_rule_test
