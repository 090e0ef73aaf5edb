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

}  // namespace
}  // namespace trainyard::frontends::flag_ranges_test
