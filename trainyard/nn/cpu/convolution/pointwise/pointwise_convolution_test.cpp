// Our kernels for 1x1 windows, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/pointwise/pointwise_convolution.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::pointwise_convolution_test {
namespace {

using Direction = ConvolutionDirection;

std::unique_ptr<ConvolutionKernel> pointwise(const ConvolutionShape& shape, Direction direction) {
  return make_pointwise_convolution(shape, {.direction = direction});
}

ConvolutionShape one_by_one(int64_t batch, int64_t in, int64_t out, int64_t height, int64_t width, bool bias = false) {
  ConvolutionShape shape = square(batch, in, out, height, width, 1, 1, 0);
  shape.bias = bias;
  return shape;
}

// More channels than one sweep sums over, with any instruction set.
constexpr int64_t kTwoSums = 4096 + 24;

// All sizes of a tile of pixels; one, two, three and four blocks of channels, the last one half full; sums over more
// channels than one sweep takes; images of more than a chunk, and of less than a span.
TEST(PointwiseConvolution, AgreesWithTheDefinition) {
  for (int64_t pixels = 1; pixels <= 16; ++pixels) {
    expect_agreement(Problem(one_by_one(2, 20, 19, 1, pixels, pixels % 2 == 0)), pointwise);
  }
  for (const int64_t channels : {3, 8, 16, 24, 40, 49, 64}) {
    expect_agreement(Problem(one_by_one(2, channels, 24, 5, 3)), pointwise);
    expect_agreement(Problem(one_by_one(2, 24, channels, 5, 3)), pointwise);
  }
  expect_agreement(Problem(one_by_one(2, 600, 8, 7, 7, true)), pointwise);
  expect_agreement(Problem(one_by_one(2, 8, 600, 7, 7, true)), pointwise);
  expect_agreement(Problem(one_by_one(1, 1100, 24, 9, 23, true)), pointwise);
  expect_agreement(Problem(one_by_one(1, kTwoSums, 35, 5, 7, true)), pointwise);
  expect_agreement(Problem(one_by_one(1, 24, 2100, 9, 7)), pointwise);
  expect_agreement(Problem(one_by_one(5, 24, 40, 33, 31, true)), pointwise);
}

// What has_plain_gradient() promises: the caller may take the packed gradient as it is.
TEST(PointwiseConvolution, WritesPlainGradientsOfWholeBlocks) {
  EXPECT_FALSE(pointwise(one_by_one(2, 20, 32, 5, 7), Direction::kBackwardWeights)->has_plain_gradient());
  EXPECT_FALSE(pointwise(one_by_one(2, 32, 20, 5, 7), Direction::kBackwardWeights)->has_plain_gradient());
  const auto kernel = pointwise(one_by_one(2, 48, 32, 5, 7), Direction::kBackwardWeights);
  ASSERT_TRUE(kernel->has_plain_gradient());
  ASSERT_EQ(kernel->weights_bytes(), 48 * 32 * 4);
  std::vector<float> packed(48 * 32), plain(48 * 32);
  std::iota(packed.begin(), packed.end(), 1.0F);
  kernel->unpack(packed.data(), plain.data());
  EXPECT_EQ(plain, packed);
}

// The first has panels to share out, the second chunks.
TEST(PointwiseConvolution, GivesTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape : {one_by_one(1, 600, 130, 5, 7), one_by_one(5, 40, 72, 21, 20)}) {
    const Problem p(shape);
    const auto kernel = [&](Direction direction) { return pointwise(p.shape, direction); };
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kForward)).forward(p); });
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(p); });
    expect_same_for_any_threads(
        [&] { return Runner(*kernel(Direction::kBackwardWeights)).backward_weights(p).weights; });
  }
}

// With few channels and with sums in several parts, where the addition and the activation come once.
TEST(PointwiseConvolution, AddsThenActivates) {
  for (const ConvolutionShape& shape : {one_by_one(2, 22, 35, 6, 7, true), one_by_one(1, 1100, 24, 9, 23, true),
                                        one_by_one(1, kTwoSums, 35, 5, 7, true)}) {
    const Problem p(shape);
    const double bound = shape.in_channels == kTwoSums ? 3e-6 : 1e-6;
    const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kFloat, 9);
    const auto run = [&](UnitActivation activation, bool sum) {
      const auto kernel =
          make_pointwise_convolution(p.shape, {.inference = true, .sum = sum, .activation = activation});
      return Runner(*kernel).forward(p, sum ? &before : nullptr);
    };
    const std::vector<double> relu = added_then_relu(p, before);
    EXPECT_LE(relative_error(run(UnitActivation::kRelu, true), relu), bound);
    std::vector<double> relu6, alone;
    for (const double value : relu) relu6.push_back(std::min(value, 6.0));
    for (const double value : p.output) alone.push_back(std::clamp(value, 0.0, 6.0));
    EXPECT_LE(relative_error(run(UnitActivation::kRelu6, true), relu6), bound);
    EXPECT_LE(relative_error(run(UnitActivation::kRelu6, false), alone), bound);
  }
}

TEST(PointwiseConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = one_by_one(2, 32, 32, 8, 8);
  ASSERT_NE(make_pointwise_convolution(good, {}), nullptr);
  EXPECT_EQ(make_pointwise_convolution(square(2, 32, 32, 8, 8, 3, 1, 1), {}), nullptr) << "3 x 3";
  EXPECT_EQ(make_pointwise_convolution(square(2, 32, 32, 8, 8, 1, 2, 0), {}), nullptr) << "stride 2";
  EXPECT_EQ(make_pointwise_convolution(square(2, 32, 32, 8, 8, 1, 1, 1), {}), nullptr) << "padding";
  EXPECT_EQ(make_pointwise_convolution(good, {.activation = UnitActivation::kSilu}), nullptr);
  ConvolutionShape other = good;
  other.dtype = DataType::kBfloat16;
  EXPECT_EQ(make_pointwise_convolution(other, {}), nullptr);
  other = good;
  other.groups = 2;
  EXPECT_EQ(make_pointwise_convolution(other, {}), nullptr);
  other = good;
  other.plain_input = true;
  EXPECT_EQ(make_pointwise_convolution(other, {}), nullptr);
  other = good;
  ++other.out_width;
  EXPECT_EQ(make_pointwise_convolution(other, {}), nullptr);
  other = good;
  ++other.out_height;
  EXPECT_EQ(make_pointwise_convolution(other, {}), nullptr);
}

}  // namespace
}  // namespace trainyard::nn::cpu::pointwise_convolution_test
