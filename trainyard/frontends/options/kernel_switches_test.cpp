#include "trainyard/frontends/options/kernel_switches.h"

#include <string>
#include <utility>

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

TEST(RewriterConfig, EachFusionHasItsName) {
  const std::pair<std::string, bool nn::Fusions::*> names[] = {
      {"norm_addition", &nn::Fusions::norm_addition},
      {"norm_activation", &nn::Fusions::norm_activation},
      {"convolution_activation", &nn::Fusions::convolution_activation},
      {"sum_activation", &nn::Fusions::sum_activation},
      {"layer_scale", &nn::Fusions::layer_scale},
      {"folded_norm", &nn::Fusions::folded_norm},
      {"constant_folding", &nn::Fusions::folded_norm},
      {"inverted_residual", &nn::Fusions::inverted_residual}};
  for (const auto& [name, member] : names) {
    nn::Fusions alone = nn::Fusions::none(), without;
    alone.*member = true;
    without.*member = false;
    EXPECT_EQ(parse_rewriter_config("remapping: OFF; " + name + ": ON").fusions, alone) << name;
    EXPECT_EQ(parse_rewriter_config(name + ":\tOFF").fusions, without) << name;
  }
}

TEST(RewriterConfig, TheDefaultOfMemoryChangesNothing) {
  const RewriterConfig config = parse_rewriter_config("memory_optimization: DEFAULT_MEM_OPT");
  EXPECT_FALSE(config.recomputation.has_value());
  EXPECT_THAT(config.warnings, IsEmpty());
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
  for (const std::string value : {"MANUAL", "SWAPPING_HEURISTICS", "SCHEDULING_HEURISTICS"}) {
    const RewriterConfig memory = parse_rewriter_config("memory_optimization: " + value);
    EXPECT_THAT(memory.warnings, ElementsAre("rewriter_config: memory_optimization: " + value +
                                             " is ignored: activations are kept or made again, not moved elsewhere"));
    EXPECT_FALSE(memory.recomputation.has_value()) << value;
  }
}

TEST(RewriterConfig, RefusesWhatItDoesNotKnow) {
  const auto message = [](const char* text) { return core::message_of([&] { parse_rewriter_config(text); }); };
  EXPECT_THAT(message("remaping: ON"), HasSubstr("remaping"));
  EXPECT_THAT(message("remapping: MAYBE"), HasSubstr("MAYBE"));
  EXPECT_THAT(message("remapping"), HasSubstr("NAME: VALUE"));
  EXPECT_THAT(message("remapping: ON auto_parallel { enable: true }"), HasSubstr("auto_parallel"));
  EXPECT_THAT(message("memory_optimization: SOME"), HasSubstr("SOME"));
  EXPECT_THAT(message(": :"), HasSubstr("NAME: VALUE"));
  EXPECT_EQ(message("remapping: MAYBE"),
            "remapping has no such value: --rewriter_config=remapping: MAYBE: expected ON, OFF, DEFAULT or AGGRESSIVE, "
            "got MAYBE");
  EXPECT_EQ(message("remaping: ON"),
            "there is no such switch: --rewriter_config=remaping: ON: expected one of TensorFlow's RewriterConfig, or "
            "remapping, constant_folding, memory_optimization, disable_meta_optimizer, norm_addition, norm_activation, "
            "convolution_activation, sum_activation, layer_scale, folded_norm, inverted_residual, got remaping");
  EXPECT_EQ(message("remapping: ON layout"),
            "it is no list of switches: --rewriter_config=remapping: ON layout: expected NAME: VALUE, one behind the "
            "other, got layout");
  EXPECT_EQ(message("memory_optimization: SOME"),
            "memory_optimization has no such value: --rewriter_config=memory_optimization: SOME: expected NO_MEM_OPT, "
            "RECOMPUTATION_HEURISTICS or HEURISTICS, got SOME");
  EXPECT_EQ(message("disable_meta_optimizer: ON"),
            "a switch has no such value: --rewriter_config=disable_meta_optimizer: ON: expected true or false, got ON");
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
