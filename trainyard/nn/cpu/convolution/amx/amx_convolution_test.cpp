// Our kernels for AMX, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/amx/amx_convolution.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::amx_convolution_test {
namespace {

using Direction = ConvolutionDirection;

// Only the output is rounded, to 8 bits: 1.6e-3 to 1.8e-3 by norm, as measured, and 2.2e-3 for outputs of one pixel.
constexpr double kMapBound = 3e-3;
// Gradients of weights are floats: at most 4e-7 for the 12,544 pixels below.
constexpr double kWeightsBound = 2e-6;

std::unique_ptr<ConvolutionKernel> make_amx(const ConvolutionShape& shape, ConvolutionKernel::Options options) {
  options.algorithm = ConvolutionAlgorithm::kAmx;
  return make_amx_convolution(shape, options);
}

void expect_right(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.shape << ", padding " << p.shape.top << ' ' << p.shape.left);
  const auto forward = make_amx(p.shape, {}), data = make_amx(p.shape, {.direction = Direction::kBackwardData}),
             weights = make_amx(p.shape, {.direction = Direction::kBackwardWeights});
  ASSERT_TRUE(forward != nullptr && data != nullptr && weights != nullptr);
  const TestMap output = Runner(*forward).forward(p);
  output.expect_clean();
  EXPECT_LE(relative_error(output, p.output), kMapBound);
  const TestMap source_gradient = Runner(*data).backward_data(p);
  source_gradient.expect_clean();
  EXPECT_LE(relative_error(source_gradient, p.source_gradient), kMapBound);
  const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
  EXPECT_LE(relative_error(gradients.weights, p.weights_gradient), kWeightsBound);
  if (p.shape.bias) {
    EXPECT_LE(relative_error(gradients.bias, p.bias_gradient), kWeightsBound);
  }
}

class AmxConvolution : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) GTEST_SKIP() << core::skip::kNeedsAmx;
  }
};

TEST_F(AmxConvolution, AgreesWithTheDefinition) {
  for (const Problem& p : odd_problems(DataType::kBfloat16)) {
    if (p.shape.groups == 1) expect_right(p);
  }
  // Whole tiles and their ends; strides that divide the image and that do not; several images a strip and several
  // strips an image; one pixel.
  for (const ConvolutionShape& shape :
       {square(9, 64, 64, 14, 14, 3, 1, 1), square(5, 96, 48, 7, 7, 3, 1, 1), square(5, 160, 48, 7, 7, 1, 1, 0),
        square(2, 20, 33, 56, 56, 3, 1, 1), square(2, 34, 40, 31, 29, 3, 3, 1), square(1, 16, 16, 112, 112, 3, 1, 1),
        square(3, 33, 33, 5, 5, 3, 2, 0), square(2, 16, 16, 1, 1, 3, 1, 1), square(2, 512, 32, 9, 9, 1, 3, 0),
        square(2, 17, 33, 5, 5, 3, 1, 2), square(1, 16, 16, 1, 1, 1, 1, 0)}) {
    expect_right(Problem(in_bfloats(shape)));
  }
}

TEST_F(AmxConvolution, ReadsPlainImages) {
  for (ConvolutionShape shape :
       {square(2, 3, 32, 17, 15, 7, 2, 3), square(3, 3, 64, 64, 60, 7, 2, 3), square(2, 3, 20, 23, 27, 11, 4, 2),
        square(2, 1, 16, 9, 9, 5, 1, 0), square(5, 4, 33, 8, 9, 3, 1, 1), square(1, 3, 70, 13, 13, 3, 3, 1)}) {
    shape.plain_input = true;
    shape.bias = shape.batch == 2;
    const Problem p(in_bfloats(shape));
    SCOPED_TRACE(::testing::Message() << p.shape);
    const auto forward = make_amx(p.shape, {}), weights = make_amx(p.shape, {.direction = Direction::kBackwardWeights});
    ASSERT_TRUE(forward != nullptr && weights != nullptr);
    EXPECT_LE(relative_error(Runner(*forward).forward(p), p.output), kMapBound);
    EXPECT_LE(relative_error(Runner(*weights).backward_weights(p).weights, p.weights_gradient), kWeightsBound);
    EXPECT_EQ(make_amx(p.shape, {.direction = Direction::kBackwardData}), nullptr);
  }
}

TEST_F(AmxConvolution, AddsThenActivates) {
  const Problem p(in_bfloats(square(2, 22, 19, 6, 7, 3, 1, 1)));
  const TestMap before = TestMap::random(p.output_gradient.shape(), DataType::kBfloat16, 9);
  const auto kernel = make_amx(p.shape, {.inference = true, .sum = true, .activation = UnitActivation::kRelu});
  ASSERT_NE(kernel, nullptr);
  EXPECT_LE(relative_error(Runner(*kernel).forward(p, &before), added_then_relu(p, before)), kMapBound);
}

// There are several strips, and several units of the gradient of weights. Strips follow the number of threads.
TEST_F(AmxConvolution, GivesTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape : {square(5, 17, 33, 34, 34, 3, 1, 1), square(7, 33, 17, 30, 30, 3, 2, 1)}) {
    const Problem p(in_bfloats(shape));
    const auto kernel = [&](Direction direction) { return make_amx(p.shape, {.direction = direction}); };
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kForward)).forward(p); });
    expect_same_for_any_threads([&] { return Runner(*kernel(Direction::kBackwardData)).backward_data(p); });
    expect_same_for_any_threads(
        [&] { return Runner(*kernel(Direction::kBackwardWeights)).backward_weights(p).weights; });
  }
}

TEST_F(AmxConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1));
  ASSERT_NE(make_amx(good, {}), nullptr);
  EXPECT_EQ(make_amx(square(2, 32, 32, 8, 8, 3, 1, 1), {}), nullptr) << "float";
  EXPECT_EQ(make_amx(good, {.activation = UnitActivation::kSilu}), nullptr);
  EXPECT_EQ(make_amx_convolution(good, {}), nullptr) << "another algorithm";
  ConvolutionShape grouped = good, wrong = good, plain = good;
  grouped.groups = 2;
  plain.plain_input = true;  // and a window of 3 x 32
  ++wrong.out_width;
  EXPECT_EQ(make_amx(grouped, {}), nullptr);
  EXPECT_EQ(make_amx(plain, {}), nullptr);
  EXPECT_EQ(make_amx(wrong, {}), nullptr);
}

// Hiding the instructions from oneDNN hides them from us.
TEST(Amx, IsThereOnlyWithBf16) {
  if (has_amx()) {
    EXPECT_EQ(isa(), Isa::kAvx512Bf16);
    EXPECT_EQ(describe_isa(), "AVX-512 with BF16 and AMX");
  } else {
    EXPECT_EQ(describe_isa(), to_string(isa()));
    EXPECT_EQ(ConvolutionKernel::make(in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1)),
                                      {.algorithm = ConvolutionAlgorithm::kAmx}),
              nullptr);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::amx_convolution_test
