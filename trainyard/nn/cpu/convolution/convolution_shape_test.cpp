#include "trainyard/nn/cpu/convolution/convolution_shape.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/convolution/grouped/grouped_convolution.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/testing/convolution.h"

namespace trainyard::nn::cpu::convolution_shape_test {
namespace {

// All sizes differ. The last row of windows does not reach the last two rows of the image.
TEST(ConvolutionShapes, AreThoseOfTheGraph) {
  GraphBuilder b({.image = {4, 13, 17}, .name = "one"});
  const Graph graph = b.build(b.flatten("flat", b.convolution("layer", b.input(),
                                                              {.out_channels = 6,
                                                               .kernel = {2, 5},
                                                               .stride = {3, 2},
                                                               .padding = {Padding::Kind::kExplicit, 1, 0, 3, 1},
                                                               .dilation = {2, 1},
                                                               .groups = 2,
                                                               .bias = true})));
  const ConvolutionShape expected{.batch = 5,
                                  .in_channels = 4,
                                  .out_channels = 6,
                                  .groups = 2,
                                  .in_height = 13,
                                  .in_width = 17,
                                  .out_height = 4,
                                  .out_width = 9,
                                  .kernel_height = 2,
                                  .kernel_width = 5,
                                  .stride_height = 3,
                                  .stride_width = 2,
                                  .dilation_height = 2,
                                  .dilation_width = 1,
                                  .top = 1,
                                  .left = 3,
                                  .bottom = -2,
                                  .right = 1,
                                  .bias = true,
                                  .dtype = DataType::kBfloat16};
  EXPECT_EQ(convolution_shape(graph.node("layer"), {4, 13, 17}, 5, DataType::kBfloat16), expected);
}

TEST(ConvolutionShapes, NamesTellWindowGroupsAndKernel) {
  ConvolutionShape shape = sized(
      {.in_channels = 4, .out_channels = 6, .in_height = 7, .in_width = 9, .kernel_height = 2, .kernel_width = 5});
  EXPECT_EQ(convolution_name(shape, *make_grouped_convolution(shape, {})), "conv 2x5 lanes");
  shape.groups = 2;
  EXPECT_EQ(convolution_name(shape, *make_grouped_convolution(shape, {})), "conv 2x5 groups 2 lanes");
}

TEST(ConvolutionShapes, ImagesAreRoundedInTheirOrder) {
  std::vector<float> values = random_floats(2 * 3 * 5 * 7, 1);
  std::vector<uint16_t> rounded(values.size());
  round_image({.batch = 2, .in_channels = 3, .in_height = 5, .in_width = 7},
              at::from_blob(values.data(), {2, 3, 5, 7}, at::kFloat), rounded.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<float>(static_cast<uint32_t>(rounded[i]) << 16), rounded_to(DataType::kBfloat16, values[i]))
        << i;
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::convolution_shape_test
