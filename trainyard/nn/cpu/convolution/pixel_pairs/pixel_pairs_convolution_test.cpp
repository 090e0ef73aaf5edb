// Our gradient of weights in bfloat16, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/pixel_pairs/pixel_pairs_convolution.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::pixel_pairs_convolution_test {
namespace {

using Direction = ConvolutionDirection;

// Gradients of weights are floats, sums of exact products of 16-bit numbers: at most 4e-7 for 12,544 pixels.
constexpr double kBound = 2e-6;

std::unique_ptr<ConvolutionKernel> pairs(const ConvolutionShape& shape) {
  return make_pixel_pairs_convolution(shape, {.direction = Direction::kBackwardWeights});
}

class PixelPairsConvolution : public ::testing::Test {
 protected:
  void SetUp() override {
    if (isa() != Isa::kAvx512Bf16) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  }
};

void expect_right(const Problem& p) {
  SCOPED_TRACE(::testing::Message() << p.shape);
  const auto kernel = pairs(p.shape);
  ASSERT_NE(kernel, nullptr);
  const Runner::Gradients gradients = Runner(*kernel).backward_weights(p);
  EXPECT_LE(relative_error(gradients.weights, p.weights_gradient), kBound);
  if (p.shape.bias) {
    EXPECT_LE(relative_error(gradients.bias, p.bias_gradient), kBound);
  }
}

TEST_F(PixelPairsConvolution, AgreesWithTheDefinition) {
  for (const Problem& p : odd_problems(DataType::kBfloat16)) {
    if (p.shape.groups == 1) expect_right(p);
  }
  ConvolutionShape with_bias = square(3, 40, 24, 13, 15, 1, 1, 0);
  with_bias.bias = true;
  // One span of several images, whole and not; several spans of an image, with an odd number of pixels; panels of one
  // to four columns; more blocks than one task has, of inputs and of outputs; one pixel; strides that pass over rows.
  for (const ConvolutionShape& shape :
       {square(5, 32, 32, 7, 7, 1, 1, 0), square(9, 16, 33, 5, 5, 3, 1, 1), square(2, 48, 40, 21, 19, 1, 1, 0),
        square(1, 20, 33, 56, 56, 3, 1, 1), square(2, 64, 16, 15, 15, 1, 1, 0), square(2, 528, 16, 3, 5, 1, 1, 0),
        square(2, 16, 528, 3, 5, 1, 1, 0), square(3, 300, 270, 4, 3, 1, 1, 0), square(2, 80, 96, 5, 4, 3, 1, 1),
        square(1, 16, 16, 1, 1, 1, 1, 0), square(2, 34, 40, 31, 29, 1, 2, 0), square(2, 34, 40, 31, 29, 3, 3, 1),
        square(2, 33, 18, 16, 18, 1, 3, 0), square(3, 17, 33, 6, 5, 5, 1, 2), square(1, 16, 16, 2, 2, 3, 2, 1),
        with_bias}) {
    expect_right(Problem(in_bfloats(shape)));
  }
}

// What has_plain_gradient() promises: the caller may take the packed gradient as it is.
TEST_F(PixelPairsConvolution, WritesPlainGradientsOfWholeBlocks) {
  EXPECT_FALSE(pairs(in_bfloats(square(2, 20, 32, 5, 7, 1, 1, 0)))->has_plain_gradient());
  EXPECT_FALSE(pairs(in_bfloats(square(2, 32, 32, 5, 7, 3, 1, 1)))->has_plain_gradient());
  // Outputs that fill no blocks have no rows of their own.
  const Problem p(in_bfloats(square(2, 48, 20, 5, 7, 1, 1, 0)));
  const auto kernel = pairs(p.shape);
  ASSERT_TRUE(kernel->has_plain_gradient());
  ASSERT_EQ(kernel->weights_bytes(), 48 * 20 * 4);
  const at::Tensor source = copy_of(p.source), gradient = copy_of(p.output_gradient),
                   scratch = bytes(kernel->scratch_bytes());
  std::vector<float> plain(48 * 20 + 1, 7.0F);
  kernel->backward_weights(source.data_ptr(), gradient.data_ptr(), plain.data(), nullptr, scratch.data_ptr());
  EXPECT_EQ(plain.back(), 7.0F) << "what follows in the parameter set";
  plain.pop_back();
  EXPECT_LE(relative_error(plain, p.weights_gradient), kBound);
}

TEST_F(PixelPairsConvolution, GivesTheSameBitsForAnyThreads) {
  for (const ConvolutionShape& shape :
       {square(5, 40, 72, 21, 20, 1, 1, 0), square(2, 300, 130, 5, 7, 1, 1, 0), square(3, 48, 40, 19, 18, 3, 2, 1)}) {
    const Problem p(in_bfloats(shape));
    expect_same_for_any_threads([&] { return Runner(*pairs(p.shape)).backward_weights(p).weights; });
  }
}

// A pair that is not full, and pixels that no tap meets, make no NaN of what is not finite.
TEST_F(PixelPairsConvolution, MultipliesOnlyWhatTheDefinitionMultiplies) {
  for (const int64_t stride : {1, 2}) {
    Problem p(in_bfloats(square(1, 16, 16, 3, 3, 1, stride, 0)));
    p.source.set(0, 3, 2, 2, std::numeric_limits<float>::infinity());  // the last pixel of an odd number
    if (stride == 2) p.source.set(0, 5, 1, 1, std::nanf(""));          // which the window passes over
    const std::vector<float> gradient = Runner(*pairs(p.shape)).backward_weights(p).weights;
    for (int64_t out = 0; out < 16; ++out) {
      for (int64_t in = 0; in < 16; ++in) {
        EXPECT_EQ(std::isfinite(gradient[static_cast<size_t>(out * 16 + in)]), in != 3) << out << ' ' << in;
      }
    }
  }
}

TEST_F(PixelPairsConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = in_bfloats(square(2, 32, 32, 8, 8, 3, 1, 1));
  ASSERT_NE(pairs(good), nullptr);
  EXPECT_EQ(make_pixel_pairs_convolution(good, {}), nullptr) << "forward";
  EXPECT_EQ(make_pixel_pairs_convolution(good, {.direction = Direction::kBackwardData}), nullptr);
  EXPECT_EQ(pairs(square(2, 32, 32, 8, 8, 3, 1, 1)), nullptr) << "float";
  ConvolutionShape other = good;
  other.groups = 2;
  EXPECT_EQ(pairs(other), nullptr);
  other = good;
  other.plain_input = true;
  EXPECT_EQ(pairs(other), nullptr);
}

// The rule takes it where Winograd is not taken, for 1x1 windows and from 32 channels on, and never where the direct
// kernel or Winograd is asked for.
TEST_F(PixelPairsConvolution, IsChosenByTheRule) {
  if (has_amx()) return;  // that takes its place
  const auto chosen = [](const ConvolutionShape& shape, ConvolutionPolicy policy = ConvolutionPolicy::kByShape) {
    const auto kernel =
        choose_convolution(in_bfloats(shape), {.direction = Direction::kBackwardWeights}, {.convolutions = policy});
    return std::string(kernel->implementation());
  };
  EXPECT_EQ(chosen(square(2, 32, 32, 8, 8, 1, 1, 0)), "pixel pairs");
  EXPECT_EQ(chosen(square(2, 32, 64, 8, 8, 3, 2, 1)), "pixel pairs");
  EXPECT_EQ(chosen(square(2, 32, 32, 8, 8, 3, 1, 1)), "winograd 2x2");
  EXPECT_EQ(chosen(square(2, 24, 64, 8, 8, 1, 1, 0)), "pixel pairs");
  EXPECT_EQ(chosen(square(2, 64, 16, 8, 8, 1, 2, 0)), "pixel pairs");
  EXPECT_NE(chosen(square(2, 31, 64, 8, 8, 3, 2, 1)), "pixel pairs");
  EXPECT_NE(chosen(square(2, 64, 16, 8, 8, 3, 2, 1)), "pixel pairs");
  EXPECT_EQ(chosen(square(2, 24, 64, 8, 8, 3, 1, 1)), "winograd 2x2");
  EXPECT_NE(chosen(square(2, 16, 64, 8, 8, 3, 1, 1)), "winograd 2x2");
  EXPECT_NE(chosen(square(2, 32, 32, 8, 8, 1, 1, 0), ConvolutionPolicy::kDirect), "pixel pairs");
  EXPECT_NE(chosen(square(2, 32, 32, 8, 8, 1, 1, 0), ConvolutionPolicy::kWinograd), "pixel pairs");
}

}  // namespace
}  // namespace trainyard::nn::cpu::pixel_pairs_convolution_test
