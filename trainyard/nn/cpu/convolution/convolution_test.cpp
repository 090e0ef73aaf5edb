// The kernels that the plan's convolutions use, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/convolution.h"

#include <array>
#include <cmath>
#include <string>

#include <ATen/Version.h>
#include <gtest/gtest.h>

#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/nn/cpu/convolution/grouped/blocked_groups.h"
#include "trainyard/nn/cpu/convolution/grouped/grouped_convolution.h"
#include "trainyard/nn/cpu/convolution/onednn/onednn_convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::convolution_test {
namespace {

using Direction = ConvolutionDirection;
using Algorithm = ConvolutionAlgorithm;

std::unique_ptr<ConvolutionKernel> make(const ConvolutionShape& shape, Direction direction,
                                        Algorithm algorithm = Algorithm::kDirect) {
  return ConvolutionKernel::make(shape, {.direction = direction, .algorithm = algorithm});
}

std::unique_ptr<ConvolutionKernel> direct(const ConvolutionShape& shape, Direction direction) {
  return make(shape, direction);
}

TEST(Convolution, DirectFloatAgreesWithTheDefinition) {
  for (const Problem& problem : odd_problems(DataType::kFloat)) expect_agreement(problem, direct);
}

// Sums of products of 16-bit numbers are kept in float: only the map that is written is rounded.
TEST(Convolution, DirectBfloat16AgreesWithTheDefinition) {
  for (const Problem& problem : odd_problems(DataType::kBfloat16)) expect_agreement(problem, direct);
}

// This test and the next are for two kinds of kernel, of which make() takes only one for each shape.
TEST(Convolution, OneDnnOnWholeBlocksAgreesWithTheDefinition) {
  int kernels = 0;
  const auto whole = [&](const ConvolutionShape& shape, Direction direction) {
    auto kernel = make_onednn_convolution(shape, {.direction = direction}, true);
    kernels += kernel != nullptr ? 1 : 0;
    return kernel;
  };
  for (const DataType dtype : kDataTypes) {
    for (const Problem& problem : odd_problems(dtype)) expect_agreement(problem, whole, true);
  }
  EXPECT_GT(kernels, 50);
}
TEST(Convolution, OurKernelsAgreeWithTheDefinition) {
  const auto lanes = [](const ConvolutionShape& shape, Direction direction) {
    return make_grouped_convolution(shape, {.direction = direction});
  };
  for (const DataType dtype : kDataTypes) {
    for (const Problem& problem : odd_problems(dtype)) expect_agreement(problem, lanes);
  }
}

// Depthwise windows have a form of their own where columns, and neighbours, are a pixel apart. Maps have more rows than
// one piece of work.
TEST(Convolution, OurKernelsTakeDepthwiseWindowsOfAnyStrideAndDilation) {
  const auto lanes = [](const ConvolutionShape& shape, Direction direction) {
    return make_grouped_convolution(shape, {.direction = direction});
  };
  for (const int64_t width : {3, 5, 7}) {
    using Steps = std::array<int64_t, 4>;  // strides, then dilations, of rows and columns
    for (const Steps& steps : {Steps{1, 1, 1, 2}, Steps{1, 1, 2, 1}, Steps{1, 2, 1, 1}, Steps{2, 1, 1, 1}}) {
      expect_agreement(Problem(sized({.batch = 2,
                                      .in_channels = 19,
                                      .out_channels = 19,
                                      .groups = 19,
                                      .in_height = 20,
                                      .in_width = 23,
                                      .kernel_height = 3,
                                      .kernel_width = width,
                                      .stride_height = steps[0],
                                      .stride_width = steps[1],
                                      .dilation_height = steps[2],
                                      .dilation_width = steps[3],
                                      .top = 2,
                                      .left = 3,
                                      .bottom = 1,
                                      .right = 2,
                                      .bias = true})),
                       lanes);
    }
  }
}

TEST(Convolution, OurKernelsAreNullForOtherConvolutions) {
  const ConvolutionShape good = square(2, 24, 24, 8, 7, 3, 1, 1);
  ASSERT_NE(make_grouped_convolution(good, {}), nullptr);
  EXPECT_NE(make_grouped_convolution(good, {.activation = UnitActivation::kRelu}), nullptr);
  EXPECT_EQ(make_grouped_convolution(good, {.activation = UnitActivation::kSilu}), nullptr);
  EXPECT_EQ(make_grouped_convolution(good, {.algorithm = Algorithm::kWinograd}), nullptr);
  ConvolutionShape other = good;
  other.plain_input = true;
  EXPECT_EQ(make_grouped_convolution(other, {}), nullptr);
  other = good;
  ++other.out_height;
  EXPECT_EQ(make_grouped_convolution(other, {}), nullptr);
  other = good;
  ++other.out_width;
  EXPECT_EQ(make_grouped_convolution(other, {}), nullptr);
}

TEST(Convolution, OurKernelsGiveTheSameBitsForAnyThreads) {
  const Problem p(square(5, 24, 24, 19, 20, 3, 1, 1));
  ConvolutionShape shape = p.shape;
  shape.groups = 3;
  const Problem grouped(shape);
  const auto kernel = [&](Direction direction) { return make_grouped_convolution(shape, {.direction = direction}); };
  expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kForward)).forward(grouped); });
  expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(grouped); });
  expect_same_for_any_threads(
      [&] { return Runner(*kernel(Direction::kBackwardWeights)).backward_weights(grouped).weights; });
}

TEST(Convolution, ReadsPlainImages) {
  ConvolutionShape shape = square(2, 3, 32, 17, 15, 7, 2, 3);
  shape.plain_input = true;
  expect_agreement(Problem(shape), direct);
  shape.dtype = DataType::kBfloat16;
  if (isa() == Isa::kAvx512Bf16) expect_agreement(Problem(shape), direct);
}

TEST(Convolution, AddsThenActivates) {
  const Problem p(square(2, 22, 19, 6, 7, 3, 1, 1));
  const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kFloat, 9);
  for (const bool sum : {false, true}) {
    const auto kernel =
        ConvolutionKernel::make(p.shape, {.inference = true, .sum = sum, .activation = UnitActivation::kRelu});
    ASSERT_NE(kernel, nullptr);
    const auto expected = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
      const double added = sum ? before.at(n, c, y, x) : 0;
      return std::max(p.output[static_cast<size_t>(before.index(n, c, y, x))] + added, 0.0);
    };
    Runner(*kernel).forward(p, sum ? &before : nullptr).expect(expected, tolerance(198));
  }
}

TEST(Convolution, OurKernelsAddThenActivate) {
  const Problem p(square(2, 22, 19, 6, 7, 3, 1, 1));
  const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kFloat, 9);
  const auto kernel = make_grouped_convolution(p.shape, {.sum = true, .activation = UnitActivation::kRelu});
  const auto expected = [&](int64_t n, int64_t c, int64_t y, int64_t x) {
    return std::max(p.output[static_cast<size_t>(before.index(n, c, y, x))] + before.at(n, c, y, x), 0.0);
  };
  Runner(*kernel).forward(p, &before).expect(expected, tolerance(198));
}

// Shapes that oneDNN lacks run on kernels that compute less than eight times the products needed.
TEST(Convolution, TakesTheKernelThatMultipliesFewZeros) {
  const auto kernel = [](ConvolutionShape shape, int64_t groups, Direction direction = Direction::kForward) {
    shape.groups = groups;
    return std::string(direct(shape, direction)->implementation());
  };
  EXPECT_EQ(kernel(square(2, 64, 64, 8, 8, 3, 1, 1), 16), "lanes") << "4 channels a group";
  EXPECT_NE(kernel(square(2, 48, 48, 8, 8, 3, 1, 1), 2), "lanes") << "24 channels, and whole blocks for both groups";
  EXPECT_NE(kernel(square(2, 48, 48, 8, 8, 3, 1, 1), 48), "lanes") << "oneDNN's depthwise";
  if (isa() == Isa::kAvx2) return;
  EXPECT_EQ(kernel(square(2, 888, 888, 8, 8, 3, 1, 1), 37), "lanes") << "whole blocks only for all groups together";
  EXPECT_EQ(kernel(square(2, 48, 48, 8, 8, 5, 1, 2), 48, Direction::kBackwardWeights), "lanes")
      << "5 x 5: oneDNN has no gradient of weights";
}

// oneDNN's kernels on whole blocks multiply zeros: seven times the products of float are worth it and eight are not; in
// bfloat16 twice those of groups that fill lanes, where pairs are multiplied.
TEST(Convolution, TakesWholeBlocksUpToALimitOfProducts) {
  if (isa() == Isa::kAvx2) return;
  const auto is_ours = [](ConvolutionShape shape, int64_t groups, Direction direction = Direction::kForward) {
    shape.groups = groups;
    return std::string(direct(shape, direction)->implementation()) == "lanes";
  };
  EXPECT_FALSE(is_ours(square(2, 168, 168, 8, 8, 3, 1, 1), 7)) << "24 channels a group: 7.7 times the products";
  EXPECT_TRUE(is_ours(square(2, 133, 133, 8, 8, 3, 1, 1), 7)) << "19 channels a group: 8.2 times";
  const ConvolutionShape eighths = square(2, 64, 64, 8, 8, 3, 1, 1);
  EXPECT_TRUE(is_ours(eighths, 8)) << "8 channels a group: twice, and lanes that are filled";
  if (isa() != Isa::kAvx512Bf16) return;
  EXPECT_FALSE(is_ours(in_bfloats(eighths), 8));
  EXPECT_FALSE(is_ours(in_bfloats(eighths), 8, Direction::kBackwardData));
  EXPECT_TRUE(is_ours(in_bfloats(eighths), 8, Direction::kBackwardWeights));
  EXPECT_TRUE(is_ours(in_bfloats(eighths), 16)) << "4 channels a group: four times";
}

// Groups of whole blocks of 16 channels.
TEST(Convolution, GroupsAreCombinedToTheSmallestOfWholeBlocks) {
  const auto combined = [](int64_t in, int64_t out, int64_t groups) {
    const BlockedGroups whole = blocked_groups({.in_channels = in, .out_channels = out, .groups = groups}, 16);
    return std::array<int64_t, 3>{whole.count, whole.in, whole.out};
  };
  using Whole = std::array<int64_t, 3>;
  EXPECT_EQ(combined(20, 9, 1), (Whole{1, 32, 16})) << "one group";
  EXPECT_EQ(combined(48, 96, 3), (Whole{3, 16, 32})) << "whole blocks as they are";
  EXPECT_EQ(combined(64, 64, 16), (Whole{4, 16, 16})) << "four of 4 channels";
  EXPECT_EQ(combined(40, 40, 5), (Whole{3, 16, 16})) << "two of 8 channels, and one at the end";
  EXPECT_EQ(combined(21, 21, 21), (Whole{2, 16, 16})) << "16 of a channel, and five at the end";
  EXPECT_EQ(combined(64, 128, 32), (Whole{4, 16, 32})) << "eight of 2 channels to 4";
  EXPECT_EQ(combined(80, 40, 2), (Whole{1, 80, 48})) << "two and a half blocks";
  EXPECT_EQ(combined(120, 120, 5), (Whole{1, 128, 128})) << "no number of groups of 24 channels ends with the map";
}

TEST(Convolution, WeightsOfGroupsLieBehindEachOther) {
  const ConvolutionShape s{.in_channels = 8, .out_channels = 12, .groups = 4};  // 2 channels to 3
  EXPECT_EQ(plain_window(s, 0, 0), 0);
  EXPECT_EQ(plain_window(s, 2, 1), 5);
  EXPECT_EQ(plain_window(s, 3, 2), 6);
  EXPECT_EQ(plain_window(s, 11, 7), 23);
  EXPECT_EQ(plain_window(s, 3, 1), -1) << "of another group";
  EXPECT_EQ(plain_window(s, 12, 7), -1) << "a pad of the output";
  EXPECT_EQ(plain_window(s, 11, 8), -1) << "a pad of the input";
}

// Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016: the transforms multiply by numbers of
// different size, which costs digits. Measured for these: 6e-7 to 1.05e-6 by norm, direct sums 2e-7 (AVX2: 8e-7).
TEST(Convolution, WinogradLosesLittle) {
  constexpr double kBound = 1.5e-6;
  int kernels = 0;
  for (const int64_t channels : {32, 64, 256}) {
    const Problem p(square(2, channels, 64, 14, 14, 3, 1, 1));
    const double direct = relative_error(Runner(*make(p.shape, Direction::kForward)).forward(p), p.output);
    EXPECT_LE(direct, 1e-6);
    if (const auto kernel = make(p.shape, Direction::kForward, Algorithm::kWinograd)) {
      ++kernels;
      EXPECT_GT(kernel->scratch_bytes(), 0) << "transformed numbers lie in the memory of the plan";
      const TestMap output = Runner(*kernel).forward(p);
      output.expect_clean();
      EXPECT_LE(relative_error(output, p.output), kBound) << p.shape;
      EXPECT_GT(relative_error(output, p.output), direct) << "was it Winograd at all?";
    }
    if (const auto kernel = make(p.shape, Direction::kBackwardData, Algorithm::kWinograd)) {
      ++kernels;
      const TestMap gradient = Runner(*kernel).backward_data(p);
      gradient.expect_clean();
      EXPECT_LE(relative_error(gradient, p.source_gradient), kBound) << p.shape;
    }
  }
  EXPECT_EQ(kernels > 0, isa() != Isa::kAvx2) << "oneDNN has Winograd for AVX-512";
}

TEST(Convolution, ExactOnesMultiplyNoPairs) {
  const ConvolutionShape floats = square(2, 32, 32, 8, 8, 3, 1, 1);
  const auto exact = ConvolutionKernel::make(in_bfloats(floats), {.exact = true});
  EXPECT_STREQ(exact->implementation(), "lanes");
  EXPECT_FALSE(exact->multiplies_pairs());
  const auto of_floats = ConvolutionKernel::make(floats, {.exact = true});
  EXPECT_STRNE(of_floats->implementation(), "lanes") << "floats are not multiplied in pairs anyway";
  EXPECT_FALSE(of_floats->multiplies_pairs());
}

// What a plan asks before it lets numbers that are not finite into a kernel.
TEST(Convolution, KernelsSayWhatTheyMakeOfNumbersThatAreNotFinite) {
  const ConvolutionShape dense = square(2, 32, 32, 8, 8, 3, 1, 1);
  for (const UnitActivation activation : {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kRelu6,
                                          UnitActivation::kSilu, UnitActivation::kHardSwish}) {
    const auto kernel = make_onednn_convolution(dense, {.inference = true, .activation = activation}, false);
    ASSERT_NE(kernel, nullptr) << int(activation);
    EXPECT_EQ(kernel->hides_nan(), activation == UnitActivation::kRelu || activation == UnitActivation::kRelu6)
        << int(activation);
    EXPECT_FALSE(kernel->mixes_groups());
    EXPECT_FALSE(kernel->multiplies_pairs());
    EXPECT_FALSE(kernel->has_plain_gradient());
  }
  const auto lanes_mix = [](int64_t in, int64_t out, int64_t groups) {
    ConvolutionShape shape = square(2, in, out, 8, 8, 3, 1, 1);
    shape.groups = groups;
    const auto kernel = make_grouped_convolution(shape, {});
    EXPECT_FALSE(kernel->hides_nan() || kernel->multiplies_pairs() || kernel->has_plain_gradient()) << shape;
    return kernel->mixes_groups();
  };
  EXPECT_FALSE(lanes_mix(32, 32, 1)) << "no groups";
  EXPECT_FALSE(lanes_mix(20, 20, 5)) << "4 channels divide a block";
  EXPECT_FALSE(lanes_mix(37, 37, 37)) << "depthwise";
  EXPECT_TRUE(lanes_mix(57, 57, 3)) << "19 channels";
  EXPECT_TRUE(lanes_mix(64, 192, 64)) << "three channels from each";
}

// What oneDNN has behind its sums, and maps zero to zero.
TEST(Convolution, SomeActivationsAreFusable) {
  for (const UnitActivation activation : {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kRelu6,
                                          UnitActivation::kSilu, UnitActivation::kHardSwish}) {
    EXPECT_TRUE(ConvolutionKernel::is_fusable(activation)) << int(activation);
  }
  for (const UnitActivation activation :
       {UnitActivation::kHardSigmoid, UnitActivation::kSigmoid, UnitActivation::kGelu, UnitActivation::kTanh}) {
    EXPECT_FALSE(ConvolutionKernel::is_fusable(activation)) << int(activation);
  }
}

TEST(Convolution, IsNullWithoutAKernel) {
  EXPECT_EQ(make(square(2, 32, 32, 8, 8, 1, 1, 0), Direction::kForward, Algorithm::kWinograd), nullptr) << "1 x 1";
  EXPECT_EQ(make(square(2, 32, 32, 8, 8, 3, 2, 1), Direction::kForward, Algorithm::kWinograd), nullptr) << "stride 2";
  EXPECT_EQ(make(square(2, 32, 32, 8, 8, 5, 1, 2), Direction::kForward, Algorithm::kWinograd), nullptr) << "5 x 5";
  // A shape that does not fit together.
  ConvolutionShape wrong = square(2, 32, 32, 8, 8, 3, 1, 1);
  ++wrong.out_width;
  EXPECT_EQ(make(wrong, Direction::kForward), nullptr);
}

// Tests of smaller instruction sets rely on this. CMakeLists.txt sets the limit.
TEST(Isa, ObeysTheLimit) {
  const core::CpuIsaLimit limit = core::cpu_isa_limit();
  if (limit == core::CpuIsaLimit::kAvx2) {
    EXPECT_EQ(isa(), Isa::kAvx2);
  } else if (limit == core::CpuIsaLimit::kAvx512) {
    EXPECT_NE(isa(), Isa::kAvx512Bf16);
  }
  // LibTorch obeys it, too.
  EXPECT_EQ(at::get_cpu_capability(), core::cpu_has_avx512() ? "AVX512" : "AVX2");
  EXPECT_EQ(channel_block(), isa() == Isa::kAvx2 ? 8 : 16);
  EXPECT_EQ(to_string(Isa::kAvx512Bf16), "AVX-512 with BF16");
  // The processor's own word for it. A limit may hide it.
  if (limit == core::CpuIsaLimit::kNone) {
    EXPECT_EQ(has_vnni(), has_byte_products(channel_block()));
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::convolution_test
