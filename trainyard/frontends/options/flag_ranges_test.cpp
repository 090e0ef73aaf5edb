// The ends of the ranges that depend on what a flag means: at them and one beyond. Upstream's flags are in
// frontends/tf_cnn/runs/flag_validation_test.cpp, too, with the texts of the refusals.
#include "trainyard/frontends/options/flag_ranges.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::flag_ranges_test {
namespace {

std::string problem(const std::string& flag, const std::string& value) {
  return core::problem_of(
      [&] { check_flag_ranges(core::parse_flags(tf_cnn_flags(), {fmt::format("--{}={}", flag, value)})); });
}

TEST(FlagRangeEndings, OfIntegers) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max(), kSteps = int64_t{1} << 53;
  struct Range {
    const char* flag;
    int64_t least, most;
  };
  for (const auto& [flag, least, most] : {Range{"muon_steps", 1, 99},
                                          {"lookahead_steps", 0, kSteps},
                                          {"gradient_repacking", 0, 65'536},
                                          {"agg_small_grads_max_bytes", 0, kLargest},
                                          {"agg_small_grads_max_group", 0, kSteps},
                                          {"trt_max_workspace_size_bytes", 0, kLargest}}) {
    EXPECT_EQ(problem(flag, std::to_string(least)), "") << flag;
    EXPECT_EQ(problem(flag, std::to_string(most)), "") << flag;
    EXPECT_NE(problem(flag, std::to_string(least - 1)), "") << flag;
    if (most == kLargest) continue;
    EXPECT_EQ(problem(flag, std::to_string(most + 1)),
              fmt::format("--{} must be at most {}, not {}", flag, most, most + 1));
  }
}

// Which of the ends are in the range.
TEST(FlagRangeEndings, OfRealNumbers) {
  struct Range {
    const char* flag;
    double least;
    bool least_is_in;
    std::optional<double> most;  // nothing: there is none
    bool most_is_in;
  };
  const std::vector<Range> ranges = {{"num_epochs", 0, true, 1e9, true},
                                     {"num_eval_epochs", 0, true, 1e9, true},
                                     {"stop_after_epochs", 0, false, 1e9, true},
                                     {"num_epochs_per_decay", 0, true, 1e9, true},
                                     {"num_learning_rate_warmup_epochs", 0, true, 1e9, true},
                                     {"init_learning_rate", 0, true, {}, true},
                                     {"learning_rate_decay_factor", 0, true, {}, true},
                                     {"minimum_learning_rate", 0, true, {}, true},
                                     {"warmup_learning_rate", 0, true, {}, true},
                                     {"restart_period_factor", 1, true, {}, true},
                                     {"polynomial_power", 0, true, {}, true},
                                     {"one_cycle_rise", 0, false, 1, false},
                                     {"one_cycle_start_divisor", 0, false, {}, true},
                                     {"one_cycle_end_divisor", 0, false, {}, true},
                                     {"layer_decay", 0, false, 1, true},
                                     {"sam_rho", 0, true, {}, true},
                                     {"weight_decay", 0, true, {}, true},
                                     {"gradient_clip", 0, false, {}, true},
                                     {"clip_norm", 0, false, {}, true},
                                     {"clip_global_norm", 0, false, {}, true},
                                     {"adaptive_clip", 0, false, {}, true},
                                     {"momentum_dampening", 0, true, 1, true},
                                     {"rmsprop_decay", 0, true, 1, true},
                                     {"rmsprop_momentum", 0, true, 1, true},
                                     {"rmsprop_epsilon", 0, false, {}, true},
                                     {"adam_beta1", 0, true, 1, false},
                                     {"adam_beta2", 0, true, 1, false},
                                     {"adam_epsilon", 0, false, {}, true},
                                     {"lars_trust_coefficient", 0, false, {}, true},
                                     {"muon_momentum", 0, true, 1, false},
                                     {"lion_beta1", 0, true, 1, false},
                                     {"lion_beta2", 0, true, 1, false},
                                     {"lookahead_alpha", 0, false, 1, true},
                                     {"lookahead_final_alpha", 0, false, 1, true}};
  for (const Range& range : ranges) {
    SCOPED_TRACE(range.flag);
    const double step = range.most == 1.0 ? 0.125 : 0.5;
    EXPECT_EQ(problem(range.flag, fmt::format("{}", range.least)).empty(), range.least_is_in);
    EXPECT_NE(problem(range.flag, fmt::format("{}", range.least - step)), "");
    EXPECT_EQ(problem(range.flag, fmt::format("{}", range.least + step)), "");
    if (!range.most) {
      EXPECT_EQ(problem(range.flag, "1e300"), "");
      continue;
    }
    EXPECT_EQ(problem(range.flag, fmt::format("{}", *range.most)).empty(), range.most_is_in);
    EXPECT_EQ(problem(range.flag, fmt::format("{}", *range.most - step)), "");
    EXPECT_EQ(problem(range.flag, fmt::format("{}", *range.most + step)),
              fmt::format("--{} must be at most {}, not {}", range.flag, *range.most, *range.most + step));
  }
}

// The narrower of the declared range and of that which the meaning has; help and tests of all flags read it.
TEST(FlagRangeEndings, AreThoseOfBothDeclarations) {
  core::FlagTable table;
  table.real("layer_decay", 1.0, "").bounds(-1, 2);
  table.integer("muon_steps", 5, "").bounds(3, 1000);
  table.real("sam_rho", 0.0, "").bounds({}, 4);
  table.real("lion_beta1", 0.5, "").above(0).below(1);
  table.text("plain", "", "");
  const FlagRange decay = flag_range(*table.find("layer_decay")), steps = flag_range(*table.find("muon_steps")),
                  rho = flag_range(*table.find("sam_rho")), beta = flag_range(*table.find("lion_beta1")),
                  none = flag_range(*table.find("plain"));
  EXPECT_EQ(decay.least, 0);
  EXPECT_TRUE(decay.above_least);
  EXPECT_EQ(decay.most, 1);
  EXPECT_FALSE(decay.below_most);
  EXPECT_EQ(steps.least, 3);
  EXPECT_EQ(steps.most, 99);
  EXPECT_FALSE(steps.above_least || steps.below_most);
  EXPECT_EQ(rho.least, 0);
  EXPECT_EQ(rho.most, 4);
  EXPECT_EQ(beta.least, 0);
  EXPECT_TRUE(beta.above_least) << "as it was declared";
  EXPECT_EQ(beta.most, 1);
  EXPECT_TRUE(beta.below_most);
  EXPECT_FALSE(none.least || none.most);
}

TEST(FlagRangeEndings, AtOneNumberTheEndThatIsRefusedCounts) {
  core::FlagTable table;
  table.real("layer_decay", 0.5, "").bounds(0, 0.75);
  table.real("one_cycle_rise", 0.5, "").bounds(0, 1);
  table.real("lion_beta2", 0.5, "").bounds({}, 0.875);
  table.real("adam_beta1", 0.5, "");
  table.real("muon_momentum", 0.5, "").above(-1).below(2);
  table.real("sam_rho", 0.5, "").bounds(0.25, {});
  table.real("polynomial_power", 1.0, "");
  table.integer("kmp_settings", 0, "");
  table.integer("num_gpus", 1, "").bounds({}, 3);
  struct Range {
    const char* flag;
    double least;
    std::optional<double> most;
    bool above_least, below_most;
  };
  for (const Range& expected : {Range{"layer_decay", 0, 0.75, true, false},
                                {"one_cycle_rise", 0, 1, true, true},
                                {"lion_beta2", 0, 0.875, false, false},
                                {"adam_beta1", 0, 1, false, true},
                                {"muon_momentum", 0, 1, false, true},
                                {"sam_rho", 0.25, {}, false, false},
                                {"polynomial_power", 0, {}, false, false},
                                {"kmp_settings", 0, 1, false, false},
                                {"num_gpus", 1, 3, false, false}}) {
    SCOPED_TRACE(expected.flag);
    const FlagRange range = flag_range(*table.find(expected.flag));
    EXPECT_EQ(range.least, expected.least);
    EXPECT_EQ(range.most, expected.most);
    EXPECT_EQ(range.above_least, expected.above_least);
    EXPECT_EQ(range.below_most, expected.below_most);
  }
}

TEST(FlagRangeEndings, OfFlagsThatATableLacksOrDoesNotSetAreNotChecked) {
  core::FlagTable table;
  table.integer("batch_size", 0, "").word("auto");
  table.integer("num_batches", std::nullopt, "");
  table.real("gradient_clip", std::nullopt, "");
  table.real("momentum_dampening", 0.0, "");
  const auto problem_of = [&](const std::vector<std::string>& arguments) {
    return core::problem_of([&] { check_flag_ranges(core::parse_flags(table, arguments)); });
  };
  EXPECT_EQ(problem_of({}), "");
  EXPECT_EQ(problem_of({"--batch_size=auto"}), "");
  EXPECT_EQ(problem_of({"--batch_size=auto", "--gradient_clip=-2"}), "--gradient_clip must not be negative, as -2 is");
  EXPECT_EQ(problem_of({"--num_batches=-3"}), "--num_batches must not be negative, as -3 is");
  EXPECT_EQ(problem_of({"--momentum_dampening=1.5"}), "--momentum_dampening must be at most 1, not 1.5");
}

}  // namespace
}  // namespace trainyard::frontends::flag_ranges_test
