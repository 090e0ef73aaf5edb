#include "trainyard/nn/cpu/convolution/convolution_choice.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::nn::cpu {
namespace {

using Choice = ConvolutionChoices::Choice;
constexpr Choice kDirect{ConvolutionAlgorithm::kDirect, 0.001, 0.002};
constexpr Choice kWinograd{ConvolutionAlgorithm::kWinograd, 0.004, 0.003};

TEST(ConvolutionChoices, AreThereInTheNextProcess) {
  const core::TempDir temp;
  const std::string file = temp.file("cache/convolutions.txt");
  ConvolutionChoices(file).add("a shape, with spaces", kWinograd);
  ConvolutionChoices(file).add("another", kDirect);
  const ConvolutionChoices later(file);
  ConvolutionChoices(file).add("by the rule", {.algorithm = ConvolutionAlgorithm::kWinograd});
  EXPECT_EQ(ConvolutionChoices(file).find("by the rule")->algorithm, ConvolutionAlgorithm::kWinograd);
  ASSERT_TRUE(later.find("a shape, with spaces"));
  EXPECT_EQ(later.find("a shape, with spaces")->algorithm, ConvolutionAlgorithm::kWinograd);
  EXPECT_EQ(later.find("another")->algorithm, ConvolutionAlgorithm::kDirect);
  EXPECT_FALSE(later.find("a third"));
}

TEST(ConvolutionChoices, TheFirstOfTwoProcessesThatMeasureHolds) {
  const core::TempDir temp;
  ConvolutionChoices first(temp.file("choices.txt")), second(temp.file("choices.txt"));
  first.add("shape", kWinograd);
  EXPECT_EQ(second.add("shape", kDirect).algorithm, ConvolutionAlgorithm::kWinograd);
  EXPECT_EQ(first.add("shape", kDirect).algorithm, ConvolutionAlgorithm::kWinograd);
}

TEST(ConvolutionChoices, LivesWithoutAFileAndWithABadOne) {
  EXPECT_EQ(ConvolutionChoices("").add("shape", kWinograd).algorithm, ConvolutionAlgorithm::kWinograd);
  const core::TempDir temp;
  core::local_file_system().write_file_atomically(temp.file("bad.txt"), "something else\n1\t2\tshape\n");
  EXPECT_TRUE(ConvolutionChoices(temp.file("bad.txt")).all().empty());
  core::local_file_system().write_file_atomically(
      temp.file("half.txt"),
      "trainyard convolutions 2\nwinograd\t0.5\t0.25\tgood\ndirect\tx\ty\tbad\n"
      "fft\t1\t2\tunknown\n0.5\n");
  EXPECT_EQ(ConvolutionChoices(temp.file("half.txt")).all().size(), 1U);
}

// 3x3, padded by one.
ConvolutionShape square(int64_t batch, int64_t channels, int64_t side) {
  return {.batch = batch,
          .in_channels = channels,
          .out_channels = channels,
          .in_height = side,
          .in_width = side,
          .out_height = side,
          .out_width = side,
          .kernel_height = 3,
          .kernel_width = 3,
          .top = 1,
          .left = 1,
          .bottom = 1,
          .right = 1};
}

bool has_winograd(const ConvolutionShape& shape) {  // it needs AVX-512
  return ConvolutionKernel::make(shape, {.algorithm = ConvolutionAlgorithm::kWinograd}) != nullptr;
}

bool is_winograd(const std::unique_ptr<ConvolutionKernel>& kernel) {
  return std::string(kernel->implementation()).find("wino") != std::string::npos;
}

TEST(ChooseConvolution, FollowsThePolicy) {
  const ConvolutionShape shape = square(2, 32, 12);
  const auto direct = choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kDirect});
  ASSERT_NE(direct, nullptr);
  EXPECT_FALSE(is_winograd(direct));
  if (!has_winograd(shape)) return;
  EXPECT_TRUE(is_winograd(choose_convolution(shape, {}, {.convolutions = ConvolutionPolicy::kWinograd})));
}

// The corners of the rule, computed by hand: tiles of 4x4 pixels, over the batch.
TEST(ChooseConvolution, ByShapeCountsTilesAndChannels) {
  struct Case {
    ConvolutionShape shape;
    ConvolutionAlgorithm expected;
  };
  constexpr auto kPlain = ConvolutionAlgorithm::kDirect, kFast = ConvolutionAlgorithm::kWinograd;
  ConvolutionShape narrow = square(32, 64, 56);
  narrow.out_channels = 16;
  for (const Case& c : {Case{square(32, 64, 56), kFast},    // 6272 tiles
                        Case{square(2, 32, 16), kFast},     // 32
                        Case{square(2, 32, 12), kPlain},    // 18
                        Case{square(31, 512, 4), kPlain},   // 31
                        Case{square(8, 512, 5), kFast},     // 8 * 2 * 2: tiles at the edge are not full
                        Case{square(128, 16, 32), kPlain},  // 16 channels
                        Case{narrow, kPlain}}) {
    EXPECT_EQ(convolution_by_shape(c.shape), c.expected) << c.shape.batch << " " << c.shape.in_channels;
    if (!has_winograd(c.shape)) continue;
    const auto kernel = choose_convolution(c.shape, {}, {.convolutions = ConvolutionPolicy::kByShape});
    EXPECT_EQ(is_winograd(kernel), c.expected == kFast) << c.shape.batch << " " << c.shape.in_channels;
  }
}

// What the run has chosen holds, whatever the rule or this machine says, and what is new is kept for it.
TEST(ChooseConvolution, TheRunsChoicesComeFirst) {
  const ConvolutionShape shape = square(2, 32, 16);
  if (!has_winograd(shape)) return;
  for (const ConvolutionPolicy policy : {ConvolutionPolicy::kAuto, ConvolutionPolicy::kByShape}) {
    KernelOptions kernels{.convolutions = policy, .choices = std::make_shared<KernelChoices>()};
    const bool first = is_winograd(choose_convolution(shape, {}, kernels));
    const auto chosen = kernels.choices->all();
    ASSERT_EQ(chosen.size(), 1U);
    EXPECT_EQ(chosen.begin()->second, first ? "winograd" : "direct");
    KernelOptions reversed{.convolutions = policy, .choices = std::make_shared<KernelChoices>()};
    reversed.choices->add(chosen.begin()->first, first ? "direct" : "winograd");
    EXPECT_NE(is_winograd(choose_convolution(shape, {}, reversed)), first);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu
