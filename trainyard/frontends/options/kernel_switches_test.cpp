#include "trainyard/frontends/options/kernel_switches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::frontends::kernel_switches_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

TEST(RewriterConfig, SwitchesSingleFusionsAndAll) {
  EXPECT_EQ(parse_rewriter_config("").fusions, nn::Fusions{});
  EXPECT_EQ(parse_rewriter_config("remapping: OFF").fusions, nn::Fusions::none());
  nn::Fusions two = nn::Fusions::none();
  two.sum_activation = two.folded_norm = true;
  EXPECT_EQ(parse_rewriter_config("remapping:OFF,sum_activation:ON\nconstant_folding : DEFAULT").fusions, two);
  nn::Fusions without;
  without.norm_addition = false;
  EXPECT_EQ(parse_rewriter_config("norm_addition: OFF").fusions, without);
  EXPECT_EQ(parse_rewriter_config("disable_meta_optimizer: true remapping: ON").fusions, nn::Fusions::none());
  EXPECT_EQ(parse_rewriter_config("disable_meta_optimizer: false").fusions, nn::Fusions{});
}

TEST(RewriterConfig, TranslatesWhatItSaysOfMemory) {
  using nn::Recomputation;
  EXPECT_FALSE(parse_rewriter_config("remapping: ON").recomputation.has_value());
  EXPECT_EQ(parse_rewriter_config("memory_optimization: NO_MEM_OPT").recomputation, Recomputation::kNone);
  EXPECT_EQ(parse_rewriter_config("memory_optimization: HEURISTICS").recomputation, Recomputation::kElementwise);
  EXPECT_EQ(parse_rewriter_config("memory_optimization: RECOMPUTATION_HEURISTICS").recomputation,
            Recomputation::kElementwise);
}

TEST(RewriterConfig, NamesWhatItIgnores) {
  EXPECT_THAT(parse_rewriter_config("remapping: ON").warnings, IsEmpty());
  const RewriterConfig config = parse_rewriter_config("remapping: AGGRESSIVE layout_optimizer: OFF");
  EXPECT_EQ(config.fusions, nn::Fusions{});
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("remapping: AGGRESSIVE"), HasSubstr("layout_optimizer: OFF")));
  EXPECT_THAT(parse_rewriter_config("memory_optimization: MANUAL").warnings, ElementsAre(HasSubstr("MANUAL")));
}

TEST(RewriterConfig, RefusesWhatItDoesNotKnow) {
  const auto message = [](const char* text) { return core::message_of([&] { parse_rewriter_config(text); }); };
  EXPECT_THAT(message("remaping: ON"), HasSubstr("remaping"));
  EXPECT_THAT(message("remapping: MAYBE"), HasSubstr("MAYBE"));
  EXPECT_THAT(message("remapping"), HasSubstr("NAME: VALUE"));
  EXPECT_THAT(message("remapping: ON auto_parallel { enable: true }"), HasSubstr("auto_parallel"));
  EXPECT_THAT(message("memory_optimization: SOME"), HasSubstr("SOME"));
  EXPECT_THAT(message(": :"), HasSubstr("NAME: VALUE"));
}

TEST(KernelSwitches, TakeFusionsAway) {
  EXPECT_EQ(settle_switches({}).fusions, nn::Fusions{});
  EXPECT_EQ(settle_switches({.enable_optimizations = false}).fusions, nn::Fusions::none());
  nn::Fusions norms_alone;
  norms_alone.norm_addition = norms_alone.norm_activation = false;
  EXPECT_EQ(settle_switches({.batchnorm_persistent = false}).fusions, norms_alone);
  EXPECT_EQ(settle_switches({.enable_optimizations = false, .rewriter_config = "remapping: ON"}).fusions,
            nn::Fusions::none());
}

}  // namespace
}  // namespace trainyard::frontends::kernel_switches_test
