// Convolutions that cut an image into patches, against sums in double by the definition.

#include "trainyard/nn/cpu/convolution/patches/patch_convolution.h"

#include <string>

#include <gtest/gtest.h>

#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::patch_convolution_test {
namespace {

using Direction = ConvolutionDirection;

ConvolutionShape patches(int64_t channels, int64_t out, int64_t height, int64_t width, int64_t patch,
                         DataType dtype = DataType::kFloat, bool bias = true) {
  ConvolutionShape shape = square(2, channels, out, height, width, patch, patch, 0);
  shape.dtype = dtype;
  shape.bias = bias;
  shape.plain_input = true;
  return shape;
}

ConvolutionShape with_patch(ConvolutionShape shape, int64_t height, int64_t width) {
  shape.kernel_height = shape.stride_height = height;
  shape.kernel_width = shape.stride_width = width;
  shape.bottom = shape.right = 0;
  return sized(shape);
}

std::unique_ptr<ConvolutionKernel> patch_kernel(const ConvolutionShape& shape, Direction direction) {
  return make_patch_convolution(shape, {.direction = direction});
}

bool has_blocks_of(DataType dtype) {
  return dtype == DataType::kFloat || isa() == Isa::kAvx512Bf16;
}

// Whole blocks of a patch's numbers and not, rows of a window that cross blocks, an image with pixels that no patch
// takes, patches that are wide and patches that are tall, of no more pixels than they must have.
TEST(PatchConvolution, AgreesWithTheDefinition) {
  for (const DataType dtype : {DataType::kFloat, DataType::kBfloat16}) {
    if (!has_blocks_of(dtype)) continue;  // with AVX2 maps are float
    expect_agreement(Problem(patches(3, 40, 48, 32, 16, dtype)), patch_kernel);
    expect_agreement(Problem(patches(3, 19, 28, 42, 14, dtype)), patch_kernel);
    expect_agreement(Problem(patches(1, 16, 27, 30, 9, dtype, false)), patch_kernel);
    expect_agreement(Problem(patches(4, 24, 53, 40, 11, dtype)), patch_kernel);
    expect_agreement(Problem(with_patch(patches(3, 19, 24, 52, 16, dtype), 4, 16)), patch_kernel);
    expect_agreement(Problem(with_patch(patches(2, 17, 37, 12, 8, dtype), 32, 2)), patch_kernel);
  }
}

TEST(PatchConvolution, GivesTheSameBitsForAnyThreads) {
  const Problem p(patches(3, 40, 42, 56, 14));
  expect_same_for_any_threads([&] { return Runner(*patch_kernel(p.shape, Direction::kForward)).forward(p); });
  expect_same_for_any_threads(
      [&] { return Runner(*patch_kernel(p.shape, Direction::kBackwardWeights)).backward_weights(p).weights; });
}

TEST(PatchConvolution, IsWhatConvolutionsWithLargeDisjointWindowsGet) {
  const auto name = [](const ConvolutionShape& shape) {
    const auto kernel = ConvolutionKernel::make(shape, {});
    return kernel == nullptr ? std::string() : std::string(kernel->implementation());
  };
  EXPECT_EQ(name(patches(3, 40, 48, 32, 16)).rfind("patches jit", 0), 0U);
  EXPECT_EQ(name(patches(3, 40, 48, 32, 4)).rfind("patches", 0), std::string::npos) << "a small window";
}

TEST(PatchConvolution, IsNullForOtherConvolutions) {
  const ConvolutionShape good = patches(3, 32, 32, 32, 16);
  ASSERT_NE(patch_kernel(good, Direction::kForward), nullptr);
  EXPECT_EQ(patch_kernel(good, Direction::kBackwardData), nullptr);
  EXPECT_EQ(patch_kernel(patches(3, 32, 32, 32, 7), Direction::kForward), nullptr) << "fewer than 64 pixels";
  EXPECT_EQ(patch_kernel(with_patch(good, 9, 7), Direction::kForward), nullptr) << "63 pixels";
  ConvolutionShape other = good;
  other.plain_input = false;
  EXPECT_EQ(patch_kernel(other, Direction::kForward), nullptr);
  other = good;
  other.stride_width = 8;
  EXPECT_EQ(patch_kernel(sized(other), Direction::kForward), nullptr) << "windows that overlap";
  other = good;
  other.stride_height = 8;
  EXPECT_EQ(patch_kernel(sized(other), Direction::kForward), nullptr) << "windows that overlap";
  other = good;
  other.groups = 3;
  EXPECT_EQ(patch_kernel(other, Direction::kForward), nullptr);
  other = good;
  other.dilation_height = 2;
  EXPECT_EQ(patch_kernel(other, Direction::kForward), nullptr);
  other = good;
  other.dilation_width = 2;
  EXPECT_EQ(patch_kernel(other, Direction::kForward), nullptr);
  other = good;
  other.top = 8;
  EXPECT_EQ(patch_kernel(sized(other), Direction::kForward), nullptr) << "padding";
  other = good;
  other.left = 8;
  EXPECT_EQ(patch_kernel(sized(other), Direction::kForward), nullptr) << "padding";
  other = good;
  other.bottom = 16;
  EXPECT_EQ(patch_kernel(sized(other), Direction::kForward), nullptr) << "padding at the end";
  other = good;
  other.right = 16;
  EXPECT_EQ(patch_kernel(sized(other), Direction::kForward), nullptr) << "padding at the end";
}

}  // namespace
}  // namespace trainyard::nn::cpu::patch_convolution_test
