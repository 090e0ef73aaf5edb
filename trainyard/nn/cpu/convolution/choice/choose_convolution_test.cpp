// Which kernel a convolution gets, by the rule, by measuring and by the run's choices.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/measuring_time.h"
#include "trainyard/nn/testing/convolution_shapes.h"

namespace trainyard::nn::cpu::choose_convolution_test {
namespace {

// A window of 3x3, padded by one.
ConvolutionShape three_by_three(int64_t batch, int64_t channels, int64_t side) {
  return square(batch, channels, channels, side, side, 3, 1, 1);
}

ConvolutionShape one_by_one(int64_t batch, int64_t in, int64_t out, int64_t side) {
  return square(batch, in, out, side, side, 1, 1, 0);
}

bool is_winograd(const std::unique_ptr<ConvolutionKernel>& kernel) {
  return std::string(kernel->implementation()).find("wino") != std::string::npos;
}

TEST(ChooseConvolution, TheRuleTakesAmx) {
  const ConvolutionShape shape = in_bfloats(three_by_three(2, 32, 12));
  if (!has_amx()) GTEST_SKIP() << core::skip::kNeedsAmx;
  const auto kernel = choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kByShape});
  EXPECT_STREQ(kernel->implementation(), "amx");
  KernelOptions direct{.convolutions = ConvolutionPolicy::kByShape, .choices = std::make_shared<KernelChoices>()};
  ASSERT_NE(choose_convolution(shape, {}, direct), nullptr);
  const std::string description = direct.choices->all().begin()->first;
  EXPECT_NE(description.find("AMX"), std::string::npos) << description;
  KernelOptions unknown{.convolutions = ConvolutionPolicy::kByShape, .choices = std::make_shared<KernelChoices>()};
  unknown.choices->add(description, "winograd of later versions");
  EXPECT_STRNE(choose_convolution(shape, {}, unknown)->implementation(), "amx");
}

// Groups have no kernels for AMX of ours. LibTorch's are measured, and what the run has chosen holds.
TEST(ChooseConvolution, MeasuresLibtorchWithAmx) {
  if (!has_amx()) GTEST_SKIP() << core::skip::kNeedsAmx;
  for (const int64_t groups : {1, 2}) {
    ConvolutionShape shape = in_bfloats(three_by_three(2, 64, 12));
    shape.groups = groups;
    const auto implementation = [&](ConvolutionPolicy policy, const std::shared_ptr<KernelChoices>& choices) {
      const KernelOptions kernels{.convolutions = policy, .choices = choices};
      return std::string(choose_convolution(shape, {}, kernels)->implementation());
    };
    const auto choices = std::make_shared<KernelChoices>(), of_libtorch = std::make_shared<KernelChoices>();
    implementation(ConvolutionPolicy::kAuto, choices);
    const std::string description = choices->all().begin()->first;
    const auto measured = ConvolutionChoices::instance().find(description);
    ASSERT_TRUE(measured);
    EXPECT_TRUE(measured->seconds.empty() || measured->seconds.back().first == ConvolutionAlgorithm::kLibtorch)
        << description;
    EXPECT_NE(implementation(ConvolutionPolicy::kByShape, std::make_shared<KernelChoices>()), "libtorch");
    EXPECT_NE(implementation(ConvolutionPolicy::kDirect, nullptr), "libtorch");
    EXPECT_NE(implementation(ConvolutionPolicy::kWinograd, nullptr), "libtorch");
    of_libtorch->add(description, "libtorch");
    EXPECT_EQ(implementation(ConvolutionPolicy::kAuto, of_libtorch), "libtorch");
  }
}

TEST(ChooseConvolution, FollowsThePolicy) {
  const ConvolutionShape shape = three_by_three(2, 32, 12);
  const auto direct = choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kDirect});
  ASSERT_NE(direct, nullptr);
  EXPECT_FALSE(is_winograd(direct));
  EXPECT_TRUE(is_winograd(choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kWinograd})));
}

// The corners of the rule, computed by hand: tiles of 4x4 pixels, over the batch.
TEST(ChooseConvolution, ByShapeCountsTilesAndChannels) {
  struct Case {
    ConvolutionShape shape;
    bool winograd;
  };
  ConvolutionShape narrow = three_by_three(32, 64, 56);
  narrow.out_channels = 16;
  for (const Case& c : {Case{three_by_three(32, 64, 56), true},    // 6272 tiles
                        Case{three_by_three(2, 32, 16), true},     // 32
                        Case{three_by_three(2, 32, 12), false},    // 18
                        Case{three_by_three(31, 512, 4), false},   // 31
                        Case{three_by_three(8, 512, 5), true},     // 8 * 2 * 2: tiles at the edge are not full
                        Case{three_by_three(128, 16, 32), false},  // 16 channels
                        Case{narrow, false}}) {
    EXPECT_EQ(winograd_by_shape(c.shape), c.winograd) << c.shape.batch << " " << c.shape.in_channels;
    const auto kernel = choose_convolution(c.shape, {}, {.convolutions = ConvolutionPolicy::kByShape});
    EXPECT_EQ(is_winograd(kernel), c.winograd) << c.shape.batch << " " << c.shape.in_channels;
  }
}

// The kernel for 1x1 windows is considered for all gradients of weights, for others as its instruction set is good at
// them, and never where Winograd or the direct kernel is asked for.
TEST(ChooseConvolution, TakesOurOneByOneWhereItIsFaster) {
  using Direction = ConvolutionDirection;
  using Policy = ConvolutionPolicy;
  const ConvolutionShape wide = one_by_one(2, 32, 32, 12), narrow = one_by_one(2, 24, 32, 12);
  const auto is_ours = [](const ConvolutionShape& shape, Direction direction, Policy policy = Policy::kByShape) {
    const auto kernel = choose_convolution(shape, {.direction = direction}, {.convolutions = policy});
    return std::string(kernel->implementation()) == "pointwise";
  };
  const ConvolutionShape large = one_by_one(1, 24, 24, 23);  // 529 pixels
  const bool avx2 = isa() == Isa::kAvx2;
  const ConvolutionShape least = square(1, 24, 24, 16, 32, 1, 1, 0), fewer = square(1, 24, 24, 16, 31, 1, 1, 0);
  EXPECT_EQ(is_ours(least, Direction::kForward), !avx2) << "512 pixels";
  EXPECT_FALSE(is_ours(fewer, Direction::kForward)) << "496 pixels";
  for (const ConvolutionShape& shape : {wide, narrow, large}) EXPECT_TRUE(is_ours(shape, Direction::kBackwardWeights));
  EXPECT_EQ(is_ours(wide, Direction::kBackwardData), avx2);
  EXPECT_FALSE(is_ours(narrow, Direction::kBackwardData));
  EXPECT_EQ(is_ours(large, Direction::kBackwardData), !avx2);
  EXPECT_EQ(is_ours(large, Direction::kForward), !avx2);
  EXPECT_FALSE(is_ours(wide, Direction::kForward));
  EXPECT_FALSE(is_ours(wide, Direction::kBackwardWeights, Policy::kWinograd));
  EXPECT_FALSE(is_ours(wide, Direction::kBackwardWeights, Policy::kDirect));

  KernelOptions kernels{.choices = std::make_shared<KernelChoices>()};
  ASSERT_NE(choose_convolution(wide, {.direction = Direction::kBackwardWeights}, kernels), nullptr);
  EXPECT_EQ(kernels.choices->all().size(), 1U) << "measured, and part of the run";

  // A forward on small maps is measured with AVX-512, but not selected by the rule.
  KernelOptions frozen{.choices = std::make_shared<KernelChoices>()};
  ASSERT_NE(choose_convolution(wide, {.inference = true}, frozen), nullptr);
  EXPECT_EQ(frozen.choices->all().size(), avx2 ? 0U : 1U);
  frozen = {.convolutions = Policy::kByShape, .choices = std::make_shared<KernelChoices>()};
  EXPECT_STRNE(choose_convolution(wide, {.inference = true}, frozen)->implementation(), "pointwise");
}

// Where neither Winograd nor the direct kernel is asked for.
TEST(ChooseConvolution, TakesStrassensProductsOfWideConvolutions) {
  using Policy = ConvolutionPolicy;
  const ConvolutionShape wide = one_by_one(1, 512, 256, 14);
  const auto is_strassen = [](const ConvolutionShape& shape, bool inference, Policy policy = Policy::kByShape) {
    const auto kernel = choose_convolution(shape, {.inference = inference}, {.convolutions = policy});
    return std::string(kernel->implementation()) == "strassen";
  };
  EXPECT_TRUE(is_strassen(wide, true));
  EXPECT_TRUE(is_strassen(wide, false)) << "of a training";
  EXPECT_FALSE(is_strassen(wide, true, Policy::kDirect));
  EXPECT_FALSE(is_strassen(wide, true, Policy::kWinograd));
  EXPECT_FALSE(is_strassen(one_by_one(1, 480, 256, 14), true));
  EXPECT_FALSE(is_strassen(one_by_one(1, 512, 224, 14), true));
  EXPECT_FALSE(is_strassen(one_by_one(1, 512, 512, 7), true)) << "49 pixels";
  const ConvolutionShape window{.in_channels = 64,
                                .out_channels = 256,
                                .in_height = 17,
                                .in_width = 15,
                                .out_height = 14,
                                .out_width = 14,
                                .kernel_height = 4,
                                .kernel_width = 2};
  EXPECT_TRUE(is_strassen(window, true)) << "eight positions of 64 channels";
  EXPECT_FALSE(is_strassen(window, false)) << "of a training";
}

// A sum of the gradient of an input is over the channels of the output.
TEST(ChooseConvolution, TakesStrassensProductsOfWideGradients) {
  const auto backward = [](const ConvolutionShape& shape) {
    const auto kernel = choose_convolution(shape, {.direction = ConvolutionDirection::kBackwardData},
                                           {.convolutions = ConvolutionPolicy::kByShape});
    return std::string(kernel->implementation());
  };
  EXPECT_EQ(backward(one_by_one(1, 256, 512, 14)), "strassen");
  EXPECT_NE(backward(one_by_one(1, 512, 256, 14)), "strassen");
}

// The text by which a choice is kept in files and checkpoints, and shown.
TEST(ChooseConvolution, DescribesWhatDecides) {
  const auto description = [](const ConvolutionShape& shape, const ConvolutionKernel::Options& options) {
    const KernelOptions kernels{.convolutions = ConvolutionPolicy::kByShape,
                                .choices = std::make_shared<KernelChoices>()};
    EXPECT_NE(choose_convolution(shape, options, kernels), nullptr);
    const std::map<std::string, std::string> chosen = kernels.choices->all();
    return chosen.empty() ? std::string("no choice") : chosen.begin()->first;
  };
  const std::string machine = ", " + std::to_string(omp_get_max_threads()) + " threads, " + describe_isa();
  using Direction = ConvolutionDirection;
  const ConvolutionShape uneven{.batch = 3,
                                .in_channels = 128,
                                .out_channels = 64,
                                .in_height = 9,
                                .in_width = 11,
                                .out_height = 5,
                                .out_width = 10,
                                .kernel_height = 2,
                                .kernel_width = 3,
                                .stride_height = 2,
                                .dilation_width = 2,
                                .top = 1,
                                .left = 2,
                                .right = 1};
  EXPECT_EQ(description(uneven, {.inference = true, .sum = true, .activation = UnitActivation::kRelu}),
            "float 3x128x9x11 to 64x5x10, 2x3 pad 1 2 0 1 sum relu stride 2 1 dilation 1 2, inference" + machine);
  const ConvolutionShape padded = square(2, 32, 48, 12, 13, 3, 1, 1);
  const std::string text = "float 2x32x12x13 to 48x12x13, 3x3 pad 1 1 1 1, ";
  EXPECT_EQ(description(padded, {}), text + "forward" + machine);
  EXPECT_EQ(description(padded, {.direction = Direction::kBackwardData}), text + "backward data" + machine);
  EXPECT_EQ(description(padded, {.direction = Direction::kBackwardWeights}), text + "backward weights" + machine);
  const ConvolutionShape wide = one_by_one(1, 512, 512, 14);
  for (const auto& [activation, name] : {std::pair{UnitActivation::kRelu6, "relu6"},
                                         {UnitActivation::kSilu, "silu"},
                                         {UnitActivation::kHardSwish, "hard_swish"}}) {
    EXPECT_EQ(description(wide, {.inference = true, .activation = activation}),
              std::string("float 1x512x14x14 to 512x14x14, 1x1 pad 0 0 0 0 ") + name + ", inference" + machine);
  }
  if (isa() != Isa::kAvx512Bf16) return;
  EXPECT_EQ(description(in_bfloats(padded), {}), "bfloat16 2x32x12x13 to 48x12x13, 3x3 pad 1 1 1 1, forward" + machine);
  if (!has_amx()) return;  // groups and plain images have a single kernel elsewhere
  ConvolutionShape grouped = in_bfloats(square(2, 64, 64, 12, 13, 3, 1, 1));
  grouped.groups = 2;
  EXPECT_EQ(description(grouped, {}), "bfloat16 2x64x12x13 to 64x12x13, 3x3 pad 1 1 1 1 groups 2, forward" + machine);
  ConvolutionShape image = in_bfloats(square(2, 3, 64, 12, 13, 3, 1, 1));
  image.plain_input = true;
  EXPECT_EQ(description(image, {}), "bfloat16 2x3x12x13 to 64x12x13, 3x3 pad 1 1 1 1 plain, forward" + machine);
}

TEST(ChooseConvolution, IsNullWhereThereIsNoKernel) {
  ConvolutionShape wrong = three_by_three(2, 32, 12);
  ++wrong.out_width;
  EXPECT_EQ(choose_convolution(wrong, {}, {}), nullptr);
}

// Products of a channel pair: 6 x 6 pixels are 9 tiles of 16 or 4 of 36, 7 x 7 are 16 of 16 or 4 of 36.
TEST(ChooseConvolution, ByShapeTakesTheTilesWithFewerProducts) {
  const auto implementation = [](const ConvolutionShape& shape) {
    return std::string(choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kByShape})->implementation());
  };
  EXPECT_EQ(implementation(three_by_three(32, 64, 1)), "winograd 2x2");
  EXPECT_EQ(implementation(three_by_three(32, 64, 2)), "winograd 2x2");
  EXPECT_EQ(implementation(three_by_three(32, 64, 3)), "winograd 4x4");
  EXPECT_EQ(implementation(three_by_three(32, 64, 6)), "winograd 2x2");
  EXPECT_EQ(implementation(three_by_three(32, 64, 7)), "winograd 4x4");
}

// 14 x 14 pixels are 49 tiles of 16 or 25 of 25, 15 x 15 are 64 or 25, and 8 x 8 are 16 or 9: an eighth is to be saved.
TEST(ChooseConvolution, ByShapeTakesLargerTilesInBfloat16WhereTheySaveAnEighth) {
  if (isa() != Isa::kAvx512Bf16 || has_amx()) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  const auto implementation = [](int64_t side) {
    const ConvolutionShape shape = in_bfloats(three_by_three(2, 64, side));
    return std::string(choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kByShape})->implementation());
  };
  EXPECT_EQ(implementation(14), "winograd 3x3");
  EXPECT_EQ(implementation(15), "winograd 3x3");
  EXPECT_EQ(implementation(3), "winograd 3x3");
  EXPECT_EQ(implementation(8), "winograd 2x2");
  EXPECT_EQ(implementation(4), "winograd 2x2");
}

// What has other kernels to choose from has a choice of its own.
TEST(ChooseConvolution, KeepsChoicesOfOtherKernelsApart) {
  std::set<std::string> descriptions;
  size_t kept = 0;
  const auto describe = [&](const ConvolutionShape& shape, const ConvolutionKernel::Options& options) {
    const KernelOptions kernels{.convolutions = ConvolutionPolicy::kByShape,
                                .choices = std::make_shared<KernelChoices>()};
    ASSERT_NE(choose_convolution(shape, options, kernels), nullptr);
    kept += kernels.choices->all().size();
    for (const auto& [description, algorithm] : kernels.choices->all()) descriptions.insert(description);
  };
  const ConvolutionShape shape = three_by_three(2, 64, 16);
  describe(shape, {.inference = true});
  describe(shape, {.inference = true, .activation = UnitActivation::kRelu});
  describe(shape, {.inference = true, .activation = UnitActivation::kRelu6});
  describe(shape, {.inference = true, .sum = true});
  EXPECT_GE(kept, 3U);  // a kernel without alternatives has no choice
  EXPECT_EQ(descriptions.size(), kept);
}

// The fastest of all tried algorithms is selected, and the times of all are kept. Other programs can disturb a
// measurement, after which the rule decides: of three shapes one is enough.
TEST(ChooseConvolution, TheFastestOfAllThatThereAre) {
  int measured = 0;
  for (const int64_t side : {20, 21, 22}) {
    const KernelOptions kernels{.convolutions = ConvolutionPolicy::kAuto, .choices = std::make_shared<KernelChoices>()};
    const auto kernel = choose_convolution(three_by_three(3, 48, side), {}, kernels);
    const std::map<std::string, std::string> chosen_kernels = kernels.choices->all();
    ASSERT_EQ(chosen_kernels.size(), 1U);
    const auto choice = ConvolutionChoices::instance().find(chosen_kernels.begin()->first);
    if (!choice || choice->seconds.empty()) continue;  // by the rule
    ++measured;
    EXPECT_EQ(choice->seconds.size(), isa() == Isa::kAvx2 ? 3U : 4U);
    double chosen = 0, fastest = 1e9;
    for (const auto& [algorithm, seconds] : choice->seconds) {
      EXPECT_GT(seconds, 0);
      if (algorithm == choice->algorithm) chosen = seconds;
      fastest = std::min(fastest, seconds);
    }
    EXPECT_EQ(chosen, fastest);
    EXPECT_EQ(is_winograd(kernel), choice->algorithm != ConvolutionAlgorithm::kDirect);
  }
  if (measured == 0) GTEST_SKIP() << core::skip::kNeedsIdleProcessor;
}

// A shape that no earlier process on this machine has measured, and its description.
std::pair<ConvolutionShape, std::string> new_shape() {
  for (int64_t side = 23;; ++side) {
    const ConvolutionShape shape = three_by_three(1, 48, side);
    const KernelOptions rule{.convolutions = ConvolutionPolicy::kByShape, .choices = std::make_shared<KernelChoices>()};
    EXPECT_NE(choose_convolution(shape, {}, rule), nullptr);
    const std::string description = rule.choices->all().begin()->first;
    if (!ConvolutionChoices::instance().find(description)) return {shape, description};
  }
}

TEST(ChooseConvolution, FollowsTheRuleWhenTheTimeToMeasureIsUsedUp) {
  const auto [shape, description] = new_shape();
  const KernelOptions kernels{.convolutions = ConvolutionPolicy::kAuto, .choices = std::make_shared<KernelChoices>()};
  MeasuringTime& time = MeasuringTime::instance();
  const double left = time.left();
  time.spend(left);
  const auto kernel = choose_convolution(shape, {}, kernels);
  time.spend(-left);
  EXPECT_EQ(is_winograd(kernel), winograd_by_shape(shape));
  EXPECT_TRUE(kernels.choices->find(description)) << "the run keeps it";
  EXPECT_FALSE(ConvolutionChoices::instance().find(description)) << "the next run measures it";
}

// There is time to begin, but for nothing beyond warming up. What that took counts as all that was left.
TEST(ChooseConvolution, SaysThatTheTimeToMeasureIsUsedUp) {
  const auto [shape, description] = new_shape();
  const KernelOptions kernels{.convolutions = ConvolutionPolicy::kAuto, .choices = std::make_shared<KernelChoices>()};
  MeasuringTime& time = MeasuringTime::instance();
  const double left = time.left();
  time.spend(left - 1e-9);
  ::testing::internal::CaptureStderr();
  const core::log::Level before = core::log::set_level(core::log::Level::kInfo);
  const uint64_t start = core::work_count();
  const auto kernel = choose_convolution(shape, {}, kernels);
  const uint64_t runs = core::work_count() - start;
  core::log::set_level(before);
  const std::string said = ::testing::internal::GetCapturedStderr();
  const double after = time.left();
  time.spend(after - left);
  const bool kept = ConvolutionChoices::instance().find(description).has_value();
  if (said.empty() && kept) GTEST_SKIP() << core::skip::kNeedsIdleProcessor;
  const std::string expected = fmt::format(
      "convolutions were measured for {:.3g} s, which is all that this run may: the others follow the rule of "
      "--deterministic now, and are measured by the next run\n",
      time.allowed());
  EXPECT_TRUE(said.ends_with(expected)) << said << "instead of " << expected;
  EXPECT_NEAR(after, 0, 1e-12);
  EXPECT_GE(runs, 3U) << "other processes see that it makes progress";
  EXPECT_EQ(is_winograd(kernel), winograd_by_shape(shape));
  EXPECT_TRUE(kernels.choices->find(description)) << "the run keeps it";
  EXPECT_FALSE(kept) << "the next run measures it";
}

// No map of floats has a kernel for AMX.
TEST(ChooseConvolution, MeasuresAgainWhereTheFileNamesWhatIsNotThere) {
  constexpr auto kMatrix = ConvolutionAlgorithm::kAmx;
  const ConvolutionShape shape = three_by_three(1, 48, 19);
  const KernelOptions rule{.convolutions = ConvolutionPolicy::kByShape, .choices = std::make_shared<KernelChoices>()};
  ASSERT_NE(choose_convolution(shape, {}, rule), nullptr);
  const std::string description = rule.choices->all().begin()->first;
  ConvolutionChoices& measured = ConvolutionChoices::instance();
  const auto is_matrix = [](ConvolutionAlgorithm algorithm) { return algorithm == kMatrix; };
  ASSERT_EQ(measured.add(description, {.algorithm = kMatrix}, is_matrix).algorithm, kMatrix);
  const KernelOptions kernels{.convolutions = ConvolutionPolicy::kAuto, .choices = std::make_shared<KernelChoices>()};
  MeasuringTime& time = MeasuringTime::instance();
  const double more = MeasuringTime::kLeastSeconds - time.left();  // than other tests have left
  time.spend(-more);
  const double before = time.left();
  const auto kernel = choose_convolution(shape, {}, kernels);
  const double after = time.left();
  time.spend(more);
  ASSERT_NE(kernel, nullptr);
  if (!measured.find(description)->seconds.empty()) {
    EXPECT_LT(after, before) << "what measuring took is spent";
  }
  const ConvolutionAlgorithm chosen = measured.find(description)->algorithm;
  EXPECT_NE(chosen, kMatrix);
  EXPECT_EQ(kernels.choices->find(description).value_or(""), name_of(chosen));
}

// Each algorithm that this machine has is what the run's choice says, and one that it does not have is the direct one.
TEST(ChooseConvolution, RunsWhatTheRunHasChosen) {
  const ConvolutionShape shape = three_by_three(2, 32, 16);
  KernelOptions first{.convolutions = ConvolutionPolicy::kByShape, .choices = std::make_shared<KernelChoices>()};
  choose_convolution(shape, {}, first);
  const std::string description = first.choices->all().begin()->first;
  const auto implementation = [&](const char* name) {
    KernelOptions kernels{.convolutions = ConvolutionPolicy::kAuto, .choices = std::make_shared<KernelChoices>()};
    kernels.choices->add(description, name);
    return std::string(choose_convolution(shape, {}, kernels)->implementation());
  };
  const std::string direct = implementation("direct");
  EXPECT_EQ(implementation("winograd4"), "winograd 4x4");
  EXPECT_EQ(implementation("winograd2"), "winograd 2x2");
  EXPECT_EQ(implementation("winograd") == direct, isa() == Isa::kAvx2) << "oneDNN has Winograd for AVX-512";
  EXPECT_EQ(implementation("libtorch"), direct) << "that is for bfloat16";
  EXPECT_EQ(implementation("fft"), direct);
}

// What the run has chosen holds, whatever the rule or this machine says, and what is new is kept for it.
TEST(ChooseConvolution, TheRunsChoicesComeFirst) {
  const ConvolutionShape shape = three_by_three(2, 32, 16);
  for (const ConvolutionPolicy policy : {ConvolutionPolicy::kAuto, ConvolutionPolicy::kByShape}) {
    KernelOptions kernels{.convolutions = policy, .choices = std::make_shared<KernelChoices>()};
    const bool first = is_winograd(choose_convolution(shape, {}, kernels));
    const auto chosen = kernels.choices->all();
    ASSERT_EQ(chosen.size(), 1U);
    EXPECT_EQ(chosen.begin()->second == "direct", !first);
    KernelOptions reversed{.convolutions = policy, .choices = std::make_shared<KernelChoices>()};
    reversed.choices->add(chosen.begin()->first, first ? "direct" : "winograd4");
    EXPECT_NE(is_winograd(choose_convolution(shape, {}, reversed)), first);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::choose_convolution_test
