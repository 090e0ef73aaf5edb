// Our Winograd kernels, against sums in double by the definition: F(2x2, 3x3) and F(3x3, 3x3) in bfloat16, F(4x4, 3x3)
// and F(2x2, 3x3) in float.

#include <utility>

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"
#include "trainyard/nn/cpu/convolution/winograd_fp32/winograd_fp32_convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::winograd_convolution_test {
namespace {

using Direction = ConvolutionDirection;
using Options = ConvolutionKernel::Options;

class WinogradConvolution : public ::testing::TestWithParam<ConvolutionAlgorithm> {
 protected:
  void SetUp() override {
    if (dtype() == DataType::kBfloat16 && isa() != Isa::kAvx512Bf16) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  }

  static DataType dtype() {
    const bool bfloats =
        GetParam() == ConvolutionAlgorithm::kWinograd || GetParam() == ConvolutionAlgorithm::kWinograd3;
    return bfloats ? DataType::kBfloat16 : DataType::kFloat;
  }

  // By norm. In bfloat16 a transformed pixel is a sum of four numbers between -1 and 1, rounded to 8 bits. It is
  // multiplied by a transformed weight, rounded, too, and nine such products are added up: 3.8e-3 to 4.6e-3, as
  // measured. A direct convolution rounds its output only: 1.7e-3. F(3x3, 3x3) multiplies by numbers of different size:
  // 5.9e-3 to 6.8e-3, and 9.9e-3 where a map is one pixel. In float the same is true of F(4x4, 3x3): 1e-7 to 1.1e-6.
  // F(2x2, 3x3) loses 2e-8 to 4e-7.
  static double bound(const ConvolutionShape& shape) {
    switch (GetParam()) {
      case ConvolutionAlgorithm::kWinograd:
        return 6e-3;
      case ConvolutionAlgorithm::kWinograd3:
        return shape.out_height * shape.out_width == 1 ? 1.1e-2 : 7.5e-3;
      case ConvolutionAlgorithm::kWinograd4:
        return 1.5e-6;
      default:
        return 8e-7;
    }
  }

  static ConvolutionShape typed(ConvolutionShape shape) {
    shape.dtype = dtype();
    return shape;
  }
  static ConvolutionShape padded(int64_t top, int64_t left, int64_t bottom, int64_t right) {
    ConvolutionShape shape = typed(square(2, 21, 35, 6, 7, 3, 1, 0));
    shape.top = top;
    shape.left = left;
    shape.bottom = bottom;
    shape.right = right;
    return sized(shape);
  }
  static std::unique_ptr<ConvolutionKernel> make(const ConvolutionShape& shape, Options options) {
    options.algorithm = GetParam();
    return dtype() == DataType::kFloat ? make_winograd_fp32_convolution(shape, options)
                                       : make_winograd_bf16_convolution(shape, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, WinogradConvolution,
                         ::testing::Values(ConvolutionAlgorithm::kWinograd, ConvolutionAlgorithm::kWinograd4,
                                           ConvolutionAlgorithm::kWinograd2, ConvolutionAlgorithm::kWinograd3),
                         [](const auto& algorithm) {
                           switch (algorithm.param) {
                             case ConvolutionAlgorithm::kWinograd:
                               return "Bfloat16";
                             case ConvolutionAlgorithm::kWinograd3:
                               return "Bfloat16Of3x3";
                             case ConvolutionAlgorithm::kWinograd4:
                               return "Float";
                             default:
                               return "Float2x2";
                           }
                         });

TEST_P(WinogradConvolution, AgreesWithTheDefinition) {
  ConvolutionShape with_bias = typed(square(2, 34, 13, 6, 6, 3, 1, 1));
  with_bias.bias = true;
  for (const ConvolutionShape& shape :
       {typed(square(2, 20, 19, 7, 9, 3, 1, 1)), typed(square(3, 64, 64, 14, 14, 3, 1, 1)),
        typed(square(1, 40, 112, 8, 8, 3, 1, 0)), typed(square(2, 17, 33, 5, 5, 3, 1, 2)),
        typed(square(1, 16, 16, 1, 1, 3, 1, 1)), typed(square(2, 100, 80, 3, 2, 3, 1, 1)), padded(0, 1, 2, 0),
        padded(1, 0, 0, 2), with_bias}) {
    SCOPED_TRACE(::testing::Message() << shape << ", padding " << shape.top << ' ' << shape.left);
    const Problem p(shape);
    const auto forward = make(shape, {}), data = make(shape, {.direction = Direction::kBackwardData}),
               weights = make(shape, {.direction = Direction::kBackwardWeights});
    ASSERT_TRUE(forward != nullptr && data != nullptr && weights != nullptr);
    const TestMap output = Runner(*forward).forward(p);
    output.expect_clean();
    EXPECT_LE(relative_error(output, p.output), bound(shape));
    const TestMap source_gradient = Runner(*data).backward_data(p);
    source_gradient.expect_clean();
    EXPECT_LE(relative_error(source_gradient, p.source_gradient), bound(shape));
    const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
    EXPECT_LE(relative_error(gradients.weights, p.weights_gradient), bound(shape));
    if (shape.bias) {
      EXPECT_LE(relative_error(gradients.bias, p.bias_gradient), 1e-6);
    }
  }
}

TEST_P(WinogradConvolution, AddsThenActivates) {
  const Problem p(typed(square(2, 22, 19, 6, 7, 3, 1, 1)));
  const TestMap before = TestMap::random(p.output_gradient.shape(), dtype(), 9);
  const auto kernel = make(p.shape, {.inference = true, .sum = true, .activation = UnitActivation::kRelu});
  ASSERT_NE(kernel, nullptr);
  EXPECT_LE(relative_error(Runner(*kernel).forward(p, &before), added_then_relu(p, before)), bound(p.shape));
}

// There are more tiles than a chunk has, and more than one thread's chunk has for the gradient of weights.
TEST_P(WinogradConvolution, GivesTheSameBitsForAnyThreads) {
  const Problem p(typed(square(2, 16, 336, 20, 20, 3, 1, 1)));
  const auto kernel = [&](Direction direction) { return make(p.shape, {.direction = direction}); };
  expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kForward)).forward(p); });
  expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(p); });
  expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardWeights)).backward_weights(p).weights; });
  const Runner::Gradients gradients = Runner(*kernel(Direction::kBackwardWeights)).backward_weights(p);
  EXPECT_LE(relative_error(gradients.weights, p.weights_gradient), bound(p.shape));
}

// So few tiles that threads share out the weights, of whole panels and not, of more channels than one sweep sums over.
TEST_P(WinogradConvolution, SharesWeightsToTheSameBitsForAnyThreads) {
  for (const auto& [in, out] : {std::pair(264, 72), {20, 120}}) {
    const Problem p(typed(square(1, in, out, 7, 6, 3, 1, 1)));
    const auto kernel = [&](Direction direction) { return make(p.shape, {.direction = direction}); };
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kForward)).forward(p); });
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(p); });
    EXPECT_LE(relative_error(Runner(*kernel(Direction::kForward)).forward(p), p.output), bound(p.shape));
    EXPECT_LE(relative_error(Runner(*kernel(Direction::kBackwardData)).backward_data(p), p.source_gradient),
              bound(p.shape));
  }
}

// Few channels and many tiles: each thread sums over parts of them, 32 or as few as 8, whose sums take memory together.
TEST_P(WinogradConvolution, SumsPartsToTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape :
       {typed(square(16, 20, 19, 32, 31, 3, 1, 1)), typed(square(17, 120, 19, 14, 13, 3, 1, 1))}) {
    SCOPED_TRACE(::testing::Message() << shape);
    const Problem p(shape);
    const auto kernel = make(p.shape, {.direction = Direction::kBackwardWeights});
    expect_same_for_any_threads([&] { return Runner(*kernel).backward_weights(p).weights; });
    EXPECT_LE(relative_error(Runner(*kernel).backward_weights(p).weights, p.weights_gradient), bound(shape));
  }
}

TEST_P(WinogradConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = typed(square(2, 32, 32, 8, 8, 3, 1, 1));
  ASSERT_NE(make(good, {}), nullptr);
  ConvolutionShape other = good;
  other.dtype = dtype() == DataType::kFloat ? DataType::kBfloat16 : DataType::kFloat;
  EXPECT_EQ(make(other, {}), nullptr);
  EXPECT_EQ(make(typed(square(2, 32, 32, 8, 8, 3, 2, 1)), {}), nullptr) << "stride 2";
  EXPECT_EQ(make(typed(square(2, 32, 32, 8, 8, 5, 1, 2)), {}), nullptr) << "5 x 5";
  EXPECT_EQ(make(typed(square(2, 32, 32, 8, 8, 3, 1, 3)), {}), nullptr) << "three rows of padding";
  EXPECT_EQ(make(good, {.activation = UnitActivation::kSilu}), nullptr);
  ConvolutionShape grouped = good, dilated = good, wrong = good;
  grouped.groups = 2;
  dilated.dilation_height = 2;
  ++wrong.out_width;
  EXPECT_EQ(make(grouped, {}), nullptr);
  EXPECT_EQ(make(dilated, {}), nullptr);
  EXPECT_EQ(make(wrong, {}), nullptr);
  other = good;
  ++other.out_height;
  EXPECT_EQ(make(other, {}), nullptr);
  other = good;
  other.plain_input = true;
  EXPECT_EQ(make(other, {}), nullptr);
  other = good;
  other.bottom = -1;
  other.out_height = 6;
  EXPECT_EQ(make(other, {}), nullptr) << "a row of the image that no window meets";
  other = typed(square(2, 32, 32, 1, 8, 3, 1, 1));
  other.bottom = other.out_height = 0;
  EXPECT_EQ(make(other, {}), nullptr) << "no pixels";
}

}  // namespace
}  // namespace trainyard::nn::cpu::winograd_convolution_test
