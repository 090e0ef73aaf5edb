// LibTorch's convolutions behind the interface of the plan's kernels, against sums in double by the definition. They
// run on any processor; without AVX512_BF16 LibTorch has slow ones.

#include "trainyard/nn/cpu/convolution/libtorch/libtorch_kernel.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::libtorch_kernel_test {
namespace {

using Direction = ConvolutionDirection;

std::unique_ptr<ConvolutionKernel> make(const ConvolutionShape& shape, Direction direction) {
  return ConvolutionKernel::make(shape, {.direction = direction, .algorithm = ConvolutionAlgorithm::kLibtorch});
}

// By norm. What comes out is rounded to 8 bits, which costs 1.7e-3; so is the bias before it is added. Without
// AVX512_BF16 LibTorch rounds sums anew with each image (weights) and each pixel of the window (input).
double bound(const ConvolutionShape& shape) {
  const int64_t roundings = std::max(shape.batch, shape.kernel_height * shape.kernel_width);
  return isa() == Isa::kAvx512Bf16 ? 3e-3 : 3e-3 * std::sqrt(static_cast<double>(roundings));
}

// Returns whether there are kernels, which then agree with the definition and leave pad lanes zero.
bool is_right(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.shape << ", padding " << p.shape.top << ' ' << p.shape.left);
  const auto forward = make(p.shape, Direction::kForward), data = make(p.shape, Direction::kBackwardData),
             weights = make(p.shape, Direction::kBackwardWeights);
  EXPECT_EQ(forward == nullptr, weights == nullptr);
  EXPECT_EQ(data == nullptr, forward == nullptr || p.shape.plain_input);
  if (forward == nullptr) return false;
  const TestMap output = Runner(*forward).forward(p);
  output.expect_clean();
  EXPECT_LE(relative_error(output, p.output), bound(p.shape));
  if (data != nullptr) {
    const TestMap source_gradient = Runner(*data).backward_data(p);
    source_gradient.expect_clean();
    EXPECT_LE(relative_error(source_gradient, p.source_gradient), bound(p.shape));
  }
  const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
  EXPECT_LE(relative_error(gradients.weights, p.weights_gradient), bound(p.shape));
  if (p.shape.bias) {
    EXPECT_LE(relative_error(gradients.bias, p.bias_gradient), 2e-6);
  }
  return true;
}

TEST(LibtorchKernel, AgreesWithTheDefinition) {
  int there = 0;
  for (const Problem& p : odd_problems(DataType::kBfloat16)) there += is_right(p) ? 1 : 0;
  EXPECT_EQ(there, static_cast<int>(odd_problems(DataType::kBfloat16).size()) - 1) << "all but TensorFlow's padding";
}

TEST(LibtorchKernel, ReadsPlainImages) {
  for (ConvolutionShape shape : {square(2, 3, 32, 17, 15, 7, 2, 3), square(2, 3, 20, 23, 27, 11, 4, 2),
                                 square(2, 1, 16, 9, 9, 5, 1, 0), square(3, 4, 33, 8, 9, 3, 1, 1)}) {
    shape.plain_input = true;
    shape.bias = shape.batch == 3;
    EXPECT_TRUE(is_right(Problem(in_bfloats(shape)))) << shape;
  }
}

TEST(LibtorchKernel, IsNullForOtherConvolutions) {
  const ConvolutionShape good = in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1));
  const auto is_there = [](const ConvolutionShape& shape, ConvolutionKernel::Options options = {}) {
    options.algorithm = ConvolutionAlgorithm::kLibtorch;
    return ConvolutionKernel::make(shape, options) != nullptr;
  };
  ASSERT_TRUE(is_there(good));
  EXPECT_FALSE(is_there(square(2, 32, 32, 8, 8, 3, 1, 1))) << "float";
  EXPECT_FALSE(is_there(good, {.inference = true, .activation = UnitActivation::kRelu}));
  EXPECT_FALSE(is_there(good, {.inference = true, .sum = true}));
  // What LibTorch computes outside of its memory: 1x1 with a stride on less than a block of channels.
  EXPECT_FALSE(is_there(in_bfloats(square(2, 15, 32, 9, 9, 1, 2, 0))));
  EXPECT_TRUE(is_there(in_bfloats(square(2, 16, 32, 9, 9, 1, 2, 0))));
  ConvolutionShape uneven = in_bfloats(square(2, 32, 32, 8, 8, 3, 2, 0));
  uneven.bottom = uneven.right = 1;
  EXPECT_FALSE(is_there(sized(uneven))) << "one row at the bottom alone";
  // Five rows of a window meet two of the image, one of padding above and two below.
  EXPECT_FALSE(is_there(in_bfloats(square(2, 32, 32, 2, 8, 5, 2, 1)))) << "shorter than the window";
}

// Copies in channels_last are in whole lines: of 2394 bytes of the input, 4158 of the output and 11286 of weights.
TEST(LibtorchKernel, HasRoomForTheMapsThatItCopies) {
  ConvolutionShape shape = in_bfloats(square(1, 19, 33, 9, 7, 3, 1, 1));
  EXPECT_EQ(make(shape, Direction::kForward)->scratch_bytes(), 2432);
  EXPECT_EQ(make(shape, Direction::kBackwardData)->scratch_bytes(), 4160);
  EXPECT_EQ(make(shape, Direction::kBackwardWeights)->scratch_bytes(), 2432 + 4160);
  EXPECT_EQ(make(shape, Direction::kForward)->weights_bytes(), 11328);
  shape.plain_input = true;
  EXPECT_EQ(make(shape, Direction::kForward)->scratch_bytes(), 0) << "the image is read where it is";
  EXPECT_EQ(make(shape, Direction::kBackwardWeights)->scratch_bytes(), 4160);
}

// What a plan asks before it lets numbers that are not finite into a kernel.
TEST(LibtorchKernel, MultipliesPairsAndMixesGroups) {
  ConvolutionShape shape = in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1));
  for (const Direction direction : {Direction::kForward, Direction::kBackwardData, Direction::kBackwardWeights}) {
    for (const int64_t groups : {1, 2, 32}) {
      shape.groups = groups;
      const auto kernel = make(shape, direction);
      ASSERT_NE(kernel, nullptr) << shape;
      EXPECT_EQ(kernel->mixes_groups(), groups > 1) << shape;
      EXPECT_TRUE(kernel->multiplies_pairs());
      EXPECT_FALSE(kernel->hides_nan());
      EXPECT_FALSE(kernel->has_plain_gradient());
      EXPECT_STREQ(kernel->implementation(), "libtorch");
    }
  }
}

TEST(LibtorchKernel, IsMeasuredWithAmxOnly) {
  const ConvolutionShape floats = square(2, 32, 32, 8, 8, 3, 1, 1), sixteens = in_bfloats(floats);
  EXPECT_TRUE(libtorch_by_processor(sixteens, true));
  EXPECT_FALSE(libtorch_by_processor(sixteens, false));
  EXPECT_FALSE(libtorch_by_processor(floats, true));
}

}  // namespace
}  // namespace trainyard::nn::cpu::libtorch_kernel_test
