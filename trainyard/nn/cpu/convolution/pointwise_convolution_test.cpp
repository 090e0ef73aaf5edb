// Our gradients for 1x1 windows, against sums in double by the definition. CTest runs them on any processor, limited to
// AVX2.

#include "trainyard/nn/cpu/convolution/pointwise_convolution.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/convolution/onednn_convolution.h"
#include "trainyard/nn/cpu/kernels/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu {
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

// The forward is oneDNN's, so that expect_agreement() has all three directions.
std::unique_ptr<ConvolutionKernel> gradients_pointwise(const ConvolutionShape& shape, Direction direction) {
  return direction == Direction::kForward ? make_onednn_convolution(shape, {}, false) : pointwise(shape, direction);
}

class PointwiseConvolution : public testing::Test {
 protected:
  void SetUp() override {
    if (isa() != Isa::kAvx2) GTEST_SKIP() << core::skip::kNeedsAvx2Limit;
  }
};

// All sizes of a tile of pixels; one, two, three and four blocks of channels, the last one half full; sums over more
// channels than one sweep takes; images of more than a chunk, and of less than a span.
TEST_F(PointwiseConvolution, AgreesWithTheDefinition) {
  for (int64_t pixels = 1; pixels <= 16; ++pixels) {
    expect_agreement(Problem(one_by_one(2, 20, 19, 1, pixels, pixels % 2 == 0)), gradients_pointwise);
  }
  for (const int64_t channels : {3, 8, 16, 24, 40, 49, 64}) {
    expect_agreement(Problem(one_by_one(2, channels, 24, 5, 3)), gradients_pointwise);
    expect_agreement(Problem(one_by_one(2, 24, channels, 5, 3)), gradients_pointwise);
  }
  expect_agreement(Problem(one_by_one(2, 600, 8, 7, 7, true)), gradients_pointwise);
  expect_agreement(Problem(one_by_one(2, 8, 600, 7, 7, true)), gradients_pointwise);
  expect_agreement(Problem(one_by_one(1, 1100, 24, 9, 23)), gradients_pointwise);
  expect_agreement(Problem(one_by_one(5, 24, 40, 33, 31, true)), gradients_pointwise);
}

// The first has panels to share out, the second chunks.
TEST_F(PointwiseConvolution, GivesTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape : {one_by_one(1, 600, 130, 5, 7), one_by_one(5, 40, 72, 21, 20)}) {
    const Problem p(shape);
    const auto kernel = [&](Direction direction) { return pointwise(p.shape, direction); };
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(p); });
    expect_same_for_any_threads(
        [&] { return Runner(*kernel(Direction::kBackwardWeights)).backward_weights(p).weights; });
  }
}

TEST_F(PointwiseConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = one_by_one(2, 32, 32, 8, 8);
  constexpr auto kWeights = Direction::kBackwardWeights;
  ASSERT_NE(pointwise(good, kWeights), nullptr);
  ASSERT_NE(pointwise(good, Direction::kBackwardData), nullptr);
  EXPECT_EQ(pointwise(good, Direction::kForward), nullptr);
  EXPECT_EQ(pointwise(square(2, 32, 32, 8, 8, 3, 1, 1), kWeights), nullptr) << "3 x 3";
  EXPECT_EQ(pointwise(square(2, 32, 32, 8, 8, 1, 2, 0), kWeights), nullptr) << "stride 2";
  EXPECT_EQ(pointwise(square(2, 32, 32, 8, 8, 1, 1, 1), kWeights), nullptr) << "padding";
  ConvolutionShape other = good;
  other.dtype = DataType::kBfloat16;
  EXPECT_EQ(pointwise(other, kWeights), nullptr);
  other = good;
  other.groups = 2;
  EXPECT_EQ(pointwise(other, kWeights), nullptr);
  other = good;
  other.plain_input = true;
  EXPECT_EQ(pointwise(other, kWeights), nullptr);
  other = good;
  ++other.out_width;
  EXPECT_EQ(pointwise(other, kWeights), nullptr);
}

}  // namespace
}  // namespace trainyard::nn::cpu
