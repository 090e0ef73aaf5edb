#include "trainyard/nn/quantization/rounding.h"

#include <limits>

#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/nn/execution/quantized_numbers.h"

namespace trainyard::nn::rounding_test {
namespace {

TEST(ActivationScale, CoversTheRangeInWholeStepsFromZero) {
  EXPECT_EQ(activation_scale({0, 255}), (ActivationScale{1, 0}));
  EXPECT_EQ(activation_scale({-255, 0}), (ActivationScale{1, 255}));
  EXPECT_EQ(activation_scale({-1, 4.1}), (ActivationScale{0.02F, 50}));
  // The zero point is whole: -1.3 / 0.1 = 13 is, 1.34 / 0.1 is rounded.
  EXPECT_EQ(activation_scale({-1.34, 24.16}).zero_point, 13);
}

TEST(ActivationScale, RoundsWithinHalfAStep) {
  const ActivationScale scale = activation_scale({-1.5, 2.5});
  const at::Tensor x = at::linspace(-1.5, 2.5, 4001);
  const double error = fake_quantize(x, scale).sub(x).abs().max().item<double>();
  // Half a step, also at the ends: rounding the zero point moves them by less than that.
  EXPECT_LE(error, 0.501 * scale.scale);
  EXPECT_GE(error, 0.49 * scale.scale);
  EXPECT_EQ(fake_quantize(at::tensor({0.0F}), scale).item<float>(), 0);
}

TEST(ActivationScale, OfNoRangeIsHarmless) {
  EXPECT_EQ(activation_scale({0, 0}), ActivationScale{});
  EXPECT_EQ(activation_scale({0, 1e-44}), ActivationScale{});
  EXPECT_FALSE(is_usable({0, 1e-37}));
  EXPECT_FALSE(is_usable({0, std::numeric_limits<double>::infinity()}));
  EXPECT_TRUE(is_usable({-1e30, 0}));
}

// A step is a normal float, and 255 of them are a finite one.
TEST(ActivationScale, RangesEndWhereFloatsEnd) {
  EXPECT_TRUE(is_usable({0, 3.0e-36}));
  EXPECT_FALSE(is_usable({0, 2.99e-36}));
  EXPECT_TRUE(is_usable({-1.5e-36, 1.5e-36})) << "both sides count";
  EXPECT_TRUE(is_usable({0, 3.4e38}));
  EXPECT_FALSE(is_usable({0, 3.5e38}));
  EXPECT_TRUE(is_usable({-1e38, 2.4e38}));
  EXPECT_FALSE(is_usable({-1e38, 3e38}));
}

TEST(WeightScales, AreAChannelEach) {
  const at::Tensor weight = at::tensor({127.0F, -1.0F, -12.7F, 3.0F, 0.0F, 0.0F, 1e-44F, 0.0F}).view({4, 2});
  const std::vector<float> scales = weight_scales(weight);
  EXPECT_EQ(scales, (std::vector<float>{1, 0.1F, 1, 1}));
}

TEST(RoundWeights, LeavesMultiplesOfTheScale) {
  GraphBuilder b({.image = {2, 1, 1}, .name = "net"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flatten", b.input()), {.out_features = 2, .bias = false}));
  ParameterSet set = declared_set(graph);
  at::Tensor weight = set.value(*set.find("fc.weight"));
  weight.copy_(at::tensor({127.0F, 2.5F, 0.0F, 0.0F}).view({2, 2}));
  round_weights(graph.node("fc"), weight_scales(weight), set);
  // Half to even; zeros stay zeros.
  EXPECT_TRUE(at::equal(weight, at::tensor({127.0F, 2.0F, 0.0F, 0.0F}).view({2, 2})));
}

// Scales of others may be too small for a weight.
TEST(RoundWeights, CutsWhatIsBeyondTheLargestInteger) {
  const at::Tensor weight = at::tensor({300.0F, -300.0F, 1.5F, -2.5F, 63.4F, -63.6F}).view({3, 2});
  const at::Tensor expected = at::tensor({127.0F, -127.0F, 2.0F, -2.0F, 63.5F, -63.5F}).view({3, 2});
  EXPECT_TRUE(at::equal(rounded_weights(weight, {1, 1, 0.5F}), expected));
}

}  // namespace
}  // namespace trainyard::nn::rounding_test
