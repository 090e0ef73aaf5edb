// Rounding with straight-through gradients, against PyTorch's (tools/golden/fake_quantize.py) and against the
// derivative of its definition in double.
#include "trainyard/nn/quantization/straight_through.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/nn/execution/quantized_numbers.h"
#include "trainyard/nn/quantization/rounding.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::nn::straight_through_test {
namespace {

using quantization_testing::normal;

constexpr int64_t kCount = 48, kChannels = 4;

std::vector<double> numbers_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

at::Tensor part(const std::vector<double>& numbers, int64_t from, int64_t count) {
  return at::tensor(std::vector<double>(numbers.begin() + from, numbers.begin() + from + count), at::kDouble);
}

// Returns the gradient of sum(weights * round(x)) with respect to x.
template <typename Round>
at::Tensor gradient_of(const at::Tensor& x, const at::Tensor& weights, const Round& round) {
  at::Tensor leaf = x.detach().clone().requires_grad_(true);
  (round(leaf) * weights).sum().backward();
  return leaf.grad();
}

double largest_difference(const at::Tensor& one, const at::Tensor& other) {
  return one.to(at::kDouble).sub(other.to(at::kDouble)).abs().max().item<double>();
}

TEST(StraightThrough, IsPyTorchs) {
  const std::vector<std::string> lines = core::golden_lines("trainyard/nn/testdata/fake_quantize.txt");
  ASSERT_EQ(lines.size(), 6U);
  std::vector<double> activations, weights, upstream, upstream_weights;
  for (int i = 0; i < kCount; ++i) {
    activations.push_back(3 * std::sin(7.0 * i + 0.3));
    upstream.push_back(1 + i / 8.0);
    const int channel = i / 12;
    weights.push_back((channel + 1) * (channel + 1) * std::sin(5.0 * (i % 12) + channel) / 2);
    upstream_weights.push_back(1 - i / 32.0);
  }
  const at::Tensor x = at::tensor(activations, at::kFloat), g = at::tensor(upstream, at::kFloat);
  for (size_t line = 0; line < 5; ++line) {
    const std::vector<double> expected = numbers_of(lines[line]);
    ASSERT_EQ(expected.size(), static_cast<size_t>(2 + 2 * kCount));
    const ActivationScale scale{.scale = static_cast<float>(expected[0]),
                                .zero_point = static_cast<uint8_t>(expected[1])};
    const auto round = [&](const at::Tensor& value) { return round_straight_through(value, scale); };
    EXPECT_LT(largest_difference(round(x), part(expected, 2, kCount)), 1e-6) << lines[line];
    EXPECT_EQ(largest_difference(gradient_of(x, g, round), part(expected, 2 + kCount, kCount)), 0) << lines[line];
  }
  const std::vector<double> expected = numbers_of(lines[5]);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kChannels + 2 * kCount));
  const at::Tensor w = at::tensor(weights, at::kFloat).view({kChannels, 3, 2, 2});
  const at::Tensor g_w = at::tensor(upstream_weights, at::kFloat).view_as(w);
  const std::vector<float> scales = weight_scales(w);
  for (size_t c = 0; c < kChannels; ++c) EXPECT_FLOAT_EQ(scales[c], static_cast<float>(expected[c]));
  EXPECT_LT(largest_difference(round_weights_straight_through(w), part(expected, kChannels, kCount).view_as(w)), 2e-6);
  EXPECT_EQ(largest_difference(gradient_of(w, g_w, round_weights_straight_through),
                               part(expected, kChannels + kCount, kCount).view_as(w)),
            0);
}

// The gradient is the derivative of the values cut to what 8 bits reach, by differences in double.
TEST(StraightThrough, GradientIsThatOfTheCut) {
  const ActivationScale scale{.scale = 0.011F, .zero_point = 90};
  const double step = scale.scale, low = -(90 + 0.5) * step, high = (255 - 90 + 0.5) * step, h = 1e-6;
  at::Tensor x = normal({3, 8, 5, 5}, "cut").contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor g = normal({3, 8, 5, 5}, "upstream");
  const at::Tensor exact = x.to(at::kDouble);
  const at::Tensor slope = ((exact + h).clamp(low, high) - (exact - h).clamp(low, high)) / (2 * h);
  const at::Tensor found = gradient_of(x, g, [&](const at::Tensor& v) { return round_straight_through(v, scale); });
  EXPECT_LT(largest_difference(found, g.to(at::kDouble) * slope), 1e-6);
  const double outside = (slope < 0.5).to(at::kDouble).mean().item<double>();
  EXPECT_GT(outside, 0.1);
  EXPECT_LT(outside, 0.9);
}

TEST(StraightThrough, ForwardIsFakeQuantize) {
  const ActivationScale scale{.scale = 0.02F, .zero_point = 130};
  for (const at::Tensor& x : {normal({4, 6, 7, 7}, "a").contiguous(at::MemoryFormat::ChannelsLast), normal({5, 9}, "b"),
                              normal({6, 10}, "c").slice(1, 0, 10, 3), normal({3, 5}, "d").to(at::kDouble)}) {
    EXPECT_TRUE(round_straight_through(x, scale).equal(fake_quantize(x, scale)));
  }
}

TEST(StraightThrough, NanStaysNan) {
  at::Tensor x = normal({20}, "nan");
  x[3] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor rounded = round_straight_through(x, {.scale = 0.1F, .zero_point = 128});
  EXPECT_TRUE(rounded[3].isnan().item<bool>());
  EXPECT_EQ(rounded.isnan().sum().item<int64_t>(), 1);
}

TEST(StraightThrough, LeavesTheWeightsAsTheyAre) {
  const at::Tensor weight = normal({5, 4, 3, 3}, "weight"), before = weight.clone();
  const at::Tensor rounded = round_weights_straight_through(weight);
  EXPECT_TRUE(weight.equal(before));
  EXPECT_FALSE(rounded.equal(before));
  // At most half a step of each output channel away.
  const at::Tensor steps = weight.abs().amax({1, 2, 3}, true) / 127;
  EXPECT_LE(((rounded - weight).abs() / steps).max().item<double>(), 0.5001);
}

}  // namespace
}  // namespace trainyard::nn::straight_through_test
