#include "trainyard/nn/cpu/convolution_choice.h"

#include <gtest/gtest.h>

#include "trainyard/core/file_system.h"
#include "trainyard/core/temp_dir.h"

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
  core::local_file_system().write_file_atomically(temp.file("half.txt"),
                                                  "trainyard convolutions 1\n0.5\t0.25\tgood\nx\ty\tbad\n0.5\n");
  EXPECT_EQ(ConvolutionChoices(temp.file("half.txt")).all().size(), 1U);
}

TEST(ChooseConvolution, FollowsThePolicy) {
  const ConvolutionShape shape{.batch = 2,
                               .in_channels = 32,
                               .out_channels = 32,
                               .in_height = 12,
                               .in_width = 12,
                               .out_height = 12,
                               .out_width = 12,
                               .kernel_height = 3,
                               .kernel_width = 3,
                               .top = 1,
                               .left = 1,
                               .bottom = 1,
                               .right = 1};
  const auto direct = choose_convolution(shape, {}, ConvolutionPolicy::kDirect);
  ASSERT_NE(direct, nullptr);
  EXPECT_EQ(std::string(direct->implementation()).find("wino"), std::string::npos);
  if (ConvolutionKernel::make(shape, {.algorithm = ConvolutionAlgorithm::kWinograd}) == nullptr) return;  // no AVX-512
  const auto winograd = choose_convolution(shape, {}, ConvolutionPolicy::kWinograd);
  EXPECT_NE(std::string(winograd->implementation()).find("wino"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::nn::cpu
