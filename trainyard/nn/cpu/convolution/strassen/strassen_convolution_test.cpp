// Strassen's convolutions, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/strassen/strassen_convolution.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/convolution/strassen/algorithm.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::strassen_convolution_test {
namespace {

ConvolutionShape wide(int64_t batch, int64_t in, int64_t out, int64_t height, int64_t width, int64_t kernel = 1,
                      int64_t stride = 1, bool bias = false) {
  ConvolutionShape shape = square(batch, in, out, height, width, kernel, stride, kernel / 2);
  shape.bias = bias;
  return shape;
}

std::unique_ptr<ConvolutionKernel> strassen(const ConvolutionShape& shape,
                                            UnitActivation activation = UnitActivation::kNone, bool sum = false) {
  return make_strassen_convolution(shape, {.inference = true, .sum = sum, .activation = activation});
}

std::unique_ptr<ConvolutionKernel> trained(const ConvolutionShape& shape,
                                           ConvolutionDirection direction = ConvolutionDirection::kForward,
                                           UnitActivation activation = UnitActivation::kNone) {
  return make_strassen_convolution(shape, {.direction = direction, .activation = activation});
}

double error(const Problem& p) {
  const auto kernel = strassen(p.shape);
  EXPECT_NE(kernel, nullptr) << p.shape;
  return kernel == nullptr ? 1 : relative_error(Runner(*kernel).forward(p), p.output);
}

// The sum over products of left[i] * right[j] * result[k] is 1 where part i times part j belongs to part k, else 0.
TEST(StrassenConvolution, TheTableMultipliesMatrices) {
  const StrassenTable& table = kStrassenTable;
  for (int i = 0; i < table.kParts; ++i) {
    for (int j = 0; j < table.kParts; ++j) {
      for (int k = 0; k < table.kParts; ++k) {
        int sum = 0;
        for (int r = 0; r < table.kProducts; ++r) sum += table.left[r][i] * table.right[r][j] * table.result[r][k];
        const bool belongs = i % table.kCuts == j / table.kCuts && k == i / table.kCuts * table.kCuts + j % table.kCuts;
        EXPECT_EQ(sum, belongs ? 1 : 0) << i << " " << j << " " << k;
      }
    }
  }
}

// Numbers of pixels that cannot be halved, and of all sizes of a tile; parts of one block of outputs and of three;
// several images; images of several slices.
TEST(StrassenConvolution, AgreesWithTheDefinition) {
  for (int64_t pixels = 16; pixels <= 30; ++pixels) {
    EXPECT_LE(error(Problem(wide(8, 128, 64, 1, pixels, 1, 1, pixels % 2 == 0))), 1e-6) << pixels;
  }
  EXPECT_LE(error(Problem(wide(3, 256, 96, 7, 7, 1, 1, true))), 1e-6);
  EXPECT_LE(error(Problem(wide(33, 160, 64, 5, 9, 1, 1, true))), 1e-6);
  EXPECT_LE(error(Problem(wide(1, 1024, 64, 19, 23, 1, 1, true))), 1e-6);
}

TEST(StrassenConvolution, AgreesWithTheDefinitionForWindows) {
  EXPECT_LE(error(Problem(wide(5, 128, 64, 9, 11, 1, 2, true))), 1e-6) << "1 x 1 with stride 2";
  EXPECT_LE(error(Problem(wide(4, 32, 64, 13, 11, 3, 2, true))), 1e-6) << "3 x 3 with stride 2";
  EXPECT_LE(error(Problem(wide(3, 32, 64, 9, 7, 5, 1))), 1e-6) << "5 x 5";
  ConvolutionShape other{.batch = 2, .in_channels = 32, .out_channels = 64, .in_height = 12, .in_width = 17};
  other.kernel_height = 4;
  other.kernel_width = 2;
  other.stride_width = 2;
  other.dilation_height = 2;
  other.dilation_width = 3;
  other.top = 3;
  other.right = 1;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "all sizes differ";
  EXPECT_LE(error(Problem(square(5, 32, 64, 13, 11, 3, 2, 0))), 1e-6) << "no zeros";
  other = wide(3, 128, 64, 8, 7);
  other.bottom = 1;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "zeros below";
  other.bottom = 0;
  other.right = 2;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "zeros on the right";
}

// Winograd's algorithm is for 3x3 windows with stride 1 and without dilation, in both dimensions.
TEST(StrassenConvolution, TakesWhatIsNotForWinograd) {
  const ConvolutionShape nine{.batch = 2,
                              .in_channels = 32,
                              .out_channels = 64,
                              .in_height = 13,
                              .in_width = 11,
                              .kernel_height = 3,
                              .kernel_width = 3,
                              .top = 1,
                              .left = 1,
                              .bottom = 1,
                              .right = 1};
  ConvolutionShape other = nine;
  other.kernel_height = 1;
  other.kernel_width = 9;
  other.top = other.bottom = 0;
  other.left = other.right = 4;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "1 x 9";
  other = nine;
  other.stride_height = 2;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "a stride of rows";
  other = nine;
  other.stride_width = 2;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "a stride of columns";
  other = nine;
  other.dilation_height = other.top = other.bottom = 2;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "dilated rows";
  other = nine;
  other.dilation_width = other.left = other.right = 2;
  EXPECT_LE(error(Problem(sized(other))), 1e-6) << "dilated columns";
}

TEST(StrassenConvolution, AgreesWithTheDefinitionInBfloat16) {
  if (isa() != Isa::kAvx512Bf16) {
    EXPECT_EQ(strassen(in_bfloats(wide(3, 128, 64, 7, 7))), nullptr);
    GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  }
  EXPECT_LE(error(Problem(in_bfloats(wide(3, 256, 96, 7, 7, 1, 1, true)))), 6e-3);
  EXPECT_LE(error(Problem(in_bfloats(wide(9, 160, 64, 5, 9)))), 6e-3);
  EXPECT_LE(error(Problem(in_bfloats(wide(4, 32, 64, 13, 11, 3, 2, true)))), 6e-3);
}

// The first has panels to share out, the second slices.
TEST(StrassenConvolution, GivesTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape : {wide(4, 512, 288, 5, 7), wide(17, 128, 64, 9, 8, 3, 2)}) {
    const Problem p(shape);
    expect_same_for_any_threads([&] { return Runner(*strassen(p.shape)).forward(p); });
  }
}

TEST(StrassenConvolution, AddsThenActivates) {
  const Problem p(wide(4, 128, 96, 6, 7, 1, 1, true));
  const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kFloat, 9);
  const auto run = [&](UnitActivation activation, bool sum) {
    return Runner(*strassen(p.shape, activation, sum)).forward(p, sum ? &before : nullptr);
  };
  EXPECT_LE(relative_error(run(UnitActivation::kRelu, true), added_then_relu(p, before)), 1e-6);
  std::vector<double> relu6, gelu;
  for (const double value : p.output) {
    relu6.push_back(std::clamp(value, 0.0, 6.0));
    gelu.push_back(value * std::erfc(-value / std::sqrt(2.0)) / 2);
  }
  EXPECT_LE(relative_error(run(UnitActivation::kRelu6, false), relu6), 1e-6);
  EXPECT_LE(relative_error(run(UnitActivation::kGelu, false), gelu), 1e-6);
  const auto later = strassen(p.shape)->with_activation(UnitActivation::kGelu);
  ASSERT_NE(later, nullptr);
  EXPECT_LE(relative_error(Runner(*later).forward(p), gelu), 1e-6);
  EXPECT_TRUE(later->hides_nan());
}

TEST(StrassenConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = wide(2, 128, 64, 8, 8);
  ASSERT_NE(strassen(good), nullptr);
  EXPECT_EQ(make_strassen_convolution(good, {.inference = true, .exact = true}), nullptr);
  EXPECT_EQ(make_strassen_convolution(good, {.direction = ConvolutionDirection::kBackwardData, .inference = true}),
            nullptr);
  EXPECT_EQ(strassen(wide(2, 96, 64, 8, 8)), nullptr) << "48 inputs of a part";
  EXPECT_EQ(strassen(wide(2, 128, 32, 8, 8)), nullptr) << "16 outputs of a part";
  EXPECT_EQ(strassen(wide(2, 132, 64, 8, 8)), nullptr) << "blocks that are not whole";
  EXPECT_EQ(strassen(wide(2, 128, 68, 8, 8)), nullptr);
  EXPECT_EQ(strassen(wide(2, 144 + channel_block() - 16, 64, 8, 8)), nullptr) << "an odd number of blocks";
  EXPECT_EQ(strassen(wide(2, 128, 64, 8, 8, 3)), nullptr) << "Winograd's";
  EXPECT_EQ(strassen(wide(9, 128, 64, 3, 5)), nullptr) << "15 pixels of an image";
  EXPECT_EQ(strassen(wide(2, 128, 64, 7, 9)), nullptr) << "126 pixels";
  ConvolutionShape other = good;
  other.groups = 2;
  EXPECT_EQ(strassen(other), nullptr);
  other = good;
  other.plain_input = true;
  EXPECT_EQ(strassen(other), nullptr);
}

// Numbers of pixels that cannot be halved; a panel of one block of outputs; several slices, images and groups of
// panels.
TEST(StrassenConvolution, TrainsAsTheDefinitionSays) {
  for (const ConvolutionShape& shape :
       {wide(3, 512, 288, 7, 7, 1, 1, true), wide(5, 544, 256, 5, 9), wide(1, 512, 256, 15, 17)}) {
    const Problem p(shape);
    const auto forward = trained(shape);
    ASSERT_NE(forward, nullptr) << shape;
    EXPECT_FALSE(forward->hides_nan());
    EXPECT_LE(relative_error(Runner(*forward).forward(p), p.output), 1e-6) << shape;
  }
  for (const ConvolutionShape& shape :
       {wide(3, 288, 512, 7, 7), wide(5, 256, 544, 5, 9, 1, 1, true), wide(1, 256, 512, 15, 17)}) {
    const Problem p(shape);
    const auto backward = trained(shape, ConvolutionDirection::kBackwardData);
    ASSERT_NE(backward, nullptr) << shape;
    EXPECT_LE(relative_error(Runner(*backward).backward_data(p), p.source_gradient), 1e-6) << shape;
  }
}

TEST(StrassenConvolution, TrainsWithTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape : {wide(4, 512, 512, 6, 7), wide(9, 512, 544, 4, 5)}) {
    const Problem p(shape);
    expect_same_for_any_threads([&] { return Runner(*trained(shape)).forward(p); });
    expect_same_for_any_threads(
        [&] { return Runner(*trained(shape, ConvolutionDirection::kBackwardData)).backward_data(p); });
  }
}

// Also where ReLU makes zero of it; and where sums of two pixels overflow of which neither does.
TEST(StrassenConvolution, SaysWhatIsNotFinite) {
  for (const int64_t batch : {4, 9}) {  // panels are shared out, and slices
    const ConvolutionShape shape = wide(batch, 512, 512, 4, 9);
    Problem p(shape);
    const auto is_finite = [&](UnitActivation activation) {
      const auto kernel = trained(shape, ConvolutionDirection::kForward, activation);
      const Runner r(*kernel);
      kernel->pack(p.weights.data(), r.packed.data_ptr());
      at::Tensor output = copy_of(p.output_gradient);
      return kernel->forward_is_finite(copy_of(p.source).data_ptr(), r.packed.data_ptr(), nullptr, output.data_ptr(),
                                       r.scratch.data_ptr());
    };
    const auto has_finite_gradient = [&] {
      const auto kernel = trained(shape, ConvolutionDirection::kBackwardData);
      const Runner r(*kernel);
      kernel->pack(p.weights.data(), r.packed.data_ptr());
      at::Tensor gradient = copy_of(p.source);
      return kernel->backward_data_is_finite(copy_of(p.output_gradient).data_ptr(), r.packed.data_ptr(),
                                             gradient.data_ptr(), r.scratch.data_ptr());
    };
    EXPECT_TRUE(is_finite(UnitActivation::kNone));
    EXPECT_TRUE(is_finite(UnitActivation::kRelu));
    EXPECT_TRUE(has_finite_gradient());
    for (const float spoiler : {std::nanf(""), -HUGE_VALF, HUGE_VALF}) {
      for (TestMap* map : {&p.source, &p.output_gradient}) {
        const float before = map->at(batch - 1, 511, 3, 8);
        map->set(batch - 1, 511, 3, 8, spoiler);
        EXPECT_EQ(is_finite(UnitActivation::kNone), map != &p.source) << spoiler;
        EXPECT_EQ(is_finite(UnitActivation::kRelu), map != &p.source) << spoiler;
        EXPECT_EQ(has_finite_gradient(), map == &p.source) << spoiler;
        map->set(batch - 1, 511, 3, 8, before);
      }
      const float before = p.weights.back();
      p.weights.back() = spoiler;
      EXPECT_FALSE(is_finite(UnitActivation::kNone)) << spoiler;
      EXPECT_FALSE(has_finite_gradient()) << spoiler;
      p.weights.back() = before;
    }
    p.source.set(0, 3, 0, 4, 2e38F);
    p.source.set(0, 256 + 3, 2, 4, 2e38F);  // 18 of 36 pixels behind
    EXPECT_FALSE(is_finite(UnitActivation::kNone));
  }
}

TEST(StrassenConvolution, TrainsWideProductsOnly) {
  using Direction = ConvolutionDirection;
  const ConvolutionShape good = wide(2, 512, 256, 8, 8);
  EXPECT_NE(trained(good), nullptr);
  EXPECT_EQ(trained(good, Direction::kBackwardData), nullptr) << "256 numbers a sum";
  EXPECT_NE(trained(wide(2, 256, 512, 8, 8), Direction::kBackwardData), nullptr);
  EXPECT_EQ(trained(wide(2, 256, 512, 8, 8)), nullptr);
  EXPECT_EQ(trained(wide(2, 1024, 1024, 8, 8), Direction::kBackwardWeights), nullptr);
  EXPECT_EQ(trained(wide(2, 480, 256, 8, 8)), nullptr);
  EXPECT_EQ(trained(wide(2, 512, 224, 8, 8)), nullptr);
  EXPECT_EQ(trained(wide(4, 512, 256, 15, 15, 1, 2)), nullptr) << "a stride";
  EXPECT_EQ(trained(wide(2, 512, 256, 8, 8, 5)), nullptr) << "windows";
  EXPECT_EQ(trained(in_bfloats(good)), nullptr);
  ConvolutionShape other = good;
  other.bottom = 1;
  EXPECT_EQ(trained(sized(other)), nullptr) << "zeros below";
  other = good;
  other.right = 1;
  EXPECT_EQ(trained(sized(other)), nullptr);
  other = good;
  other.top = other.bottom = 1;
  EXPECT_EQ(trained(sized(other)), nullptr);
  ConvolutionShape row = wide(2, 512, 256, 8, 8);
  row.stride_width = 2;
  EXPECT_EQ(trained(sized(row)), nullptr) << "a stride of columns";
}

}  // namespace
}  // namespace trainyard::nn::cpu::strassen_convolution_test
