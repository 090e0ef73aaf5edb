// What the guard knows of a convolution without looking at its maps, and when it looks at them.

#include "trainyard/nn/cpu/plan/nan_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::nn::cpu::nan_guard_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kChannels = 16, kPixels = 4;

// A kernel whose ReLU makes 0 of NaN. The guard asks nothing else of it.
class HidingKernel : public ConvolutionKernel {
 public:
  int64_t weights_bytes() const override { return 0; }
  int64_t scratch_bytes() const override { return 0; }
  const char* implementation() const override { return "hiding"; }
  bool hides_nan() const override { return true; }
  void pack(const float*, void*) const override {}
  void unpack(const void*, float*) const override {}
  void forward(const void*, const void*, const float*, void*, void*) const override {}
  void backward_data(const void*, const void*, void*, void*) const override {}
  void backward_weights(const void*, const void*, void*, float*, void*) const override {}
};

// 16 channels to 16, one by one, on 2 x 2 pixels. The weights of output 3 are -1, which makes a sum of 16 for 1 x 1,
// all others 0.5; the bias of output 5 is -7, all others are 1.
NanGuard small_guard() {
  const ConvolutionShape shape{.in_channels = kChannels,
                               .out_channels = kChannels,
                               .in_height = 2,
                               .in_width = 2,
                               .out_height = 2,
                               .out_width = 2,
                               .bias = true};
  NanGuard guard(shape, {.activation = UnitActivation::kRelu}, HidingKernel());
  std::vector<float> weight(kChannels * kChannels, 0.5F), bias(kChannels, 1);
  for (size_t i = 0; i < kChannels; ++i) weight[3 * kChannels + i] = -1;
  bias[5] = -7;
  guard.set_weights(weight.data(), bias.data());
  return guard;
}

// The first value is the source, the second one the residual.
Run run_with(float source, float residual) {
  Run run;
  run.bounds = {source, residual};
  return run;
}

std::vector<float> map_with(float value) {
  std::vector<float> map(kChannels * kPixels, 0.25F);
  map[37] = value;
  return map;
}

TEST(BoundBehind, IsNoSmallerThanAnyValueAndSixBehindARelu6) {
  for (const UnitActivation activation :
       {UnitActivation::kNone, UnitActivation::kRelu, UnitActivation::kRelu6, UnitActivation::kSigmoid}) {
    for (const float bound : {0.5F, 3.0F, 100.0F}) {
      const auto value = [&](float x) {
        if (activation == UnitActivation::kRelu) return std::max(x, 0.0F);
        if (activation == UnitActivation::kRelu6) return std::min(std::max(x, 0.0F), 6.0F);
        return activation == UnitActivation::kSigmoid ? 1 / (1 + std::exp(-x)) : x;
      };
      for (const float x : {-bound, bound}) {
        EXPECT_GE(bound_behind(bound, activation), std::abs(value(x))) << static_cast<int>(activation);
      }
    }
    EXPECT_FALSE(std::isfinite(bound_behind(kNan, activation)));
    EXPECT_FALSE(std::isfinite(bound_behind(kUnbounded, activation)));
  }
  EXPECT_EQ(bound_behind(100, UnitActivation::kRelu6), 6);
  EXPECT_EQ(bound_behind(3, UnitActivation::kRelu6), 3);
}

TEST(NanGuard, BoundsAConvolutionByItsWeightsBiasAndResidual) {
  const NanGuard guard = small_guard();
  const float exact = 3 * 16 + 7, with_residual = exact + 10;
  const cpu::Run run = run_with(3, 10);
  EXPECT_GE(guard.bound(run, 0, -1, UnitActivation::kRelu), exact);
  EXPECT_LE(guard.bound(run, 0, -1, UnitActivation::kRelu), 1.02F * exact) << "room for rounding";
  EXPECT_GE(guard.bound(run, 0, 1, UnitActivation::kRelu), with_residual);
  EXPECT_LE(guard.bound(run, 0, 1, UnitActivation::kRelu), 1.02F * with_residual);
}

TEST(NanGuard, SumsTheWeightsOfAnOutputOverItsGroupAndWindow) {
  constexpr int64_t kTaps = kChannels / 2 * 3 * 2;
  const ConvolutionShape shape{.in_channels = kChannels,
                               .out_channels = kChannels,
                               .groups = 2,
                               .in_height = 5,
                               .in_width = 4,
                               .out_height = 3,
                               .out_width = 3,
                               .kernel_height = 3,
                               .kernel_width = 2};
  NanGuard guard(shape, {.activation = UnitActivation::kRelu}, HidingKernel());
  std::vector<float> weight(kChannels * kTaps, 0.5F);
  std::fill(weight.end() - kTaps, weight.end(), 1.0F);  // of the last output
  guard.set_weights(weight.data(), nullptr);
  const float exact = 3 * 48;
  EXPECT_NEAR(guard.bound(run_with(3, 0), 0, -1, UnitActivation::kRelu), exact * kRoundingUp, 1e-3);
}

// What lies behind the image is not its own.
TEST(NanGuard, LooksAtAllOfAPlainImageAndNoFurther) {
  constexpr int64_t kElements = 2 * 3 * kPixels;
  ConvolutionShape shape{.batch = 2,
                         .in_channels = 3,
                         .out_channels = kChannels,
                         .in_height = 2,
                         .in_width = 2,
                         .out_height = 2,
                         .out_width = 2};
  shape.plain_input = true;
  NanGuard guard(shape, {.activation = UnitActivation::kRelu}, HidingKernel());
  const std::vector<float> weight(kChannels * 3, 0.5F);
  guard.set_weights(weight.data(), nullptr);
  std::vector<float> image(2 * kChannels * kPixels, 100);
  std::fill_n(image.begin(), kElements, 0.25F);
  image[kElements - 1] = -5;
  cpu::Run run = run_with(kUnbounded, 0);
  EXPECT_TRUE(guard.is_safe(run, {.source = 0, .source_data = image.data()}));
  EXPECT_EQ(run.bounds.front(), 5);
}

// Maps that it looked at in spite of it would be null.
TEST(NanGuard, LooksAtNoMapWhereBoundsAreSmall) {
  cpu::Run run = run_with(3, 10);
  EXPECT_TRUE(small_guard().is_safe(run, {.source = 0, .residual = 1}));
  EXPECT_EQ(run.bounds, (std::vector<float>{3, 10}));
}

// A kernel that wants its input finite, and no more.
class PairsKernel : public HidingKernel {
 public:
  bool hides_nan() const override { return false; }
  bool multiplies_pairs() const override { return true; }
};

TEST(NanGuard, LooksAtASourceWhoseBoundIsAbove2To96) {
  const ConvolutionShape shape{.in_channels = kChannels,
                               .out_channels = kChannels,
                               .in_height = 2,
                               .in_width = 2,
                               .out_height = 2,
                               .out_width = 2};
  const NanGuard guard(shape, {}, PairsKernel());
  cpu::Run harmless = run_with(0x1p96F, 0);
  EXPECT_TRUE(guard.is_safe(harmless, {.source = 0}));
  EXPECT_TRUE(guard.is_source_finite(harmless, 0, nullptr));
  EXPECT_EQ(harmless.bounds.front(), 0x1p96F);
  const std::vector<float> small = map_with(-2), large = map_with(3e38F);
  cpu::Run safe = run_with(std::nextafter(0x1p96F, kUnbounded), 0), finite = safe;
  EXPECT_TRUE(guard.is_safe(safe, {.source = 0, .source_data = small.data()}));
  EXPECT_EQ(safe.bounds.front(), 2);
  EXPECT_TRUE(guard.is_source_finite(finite, 0, small.data()));
  EXPECT_EQ(finite.bounds.front(), 2);
  cpu::Run unsafe = run_with(kUnbounded, 0);
  EXPECT_FALSE(guard.is_safe(unsafe, {.source = 0, .source_data = large.data()}));
  EXPECT_TRUE(guard.is_source_finite(unsafe, 0, large.data())) << "large, and finite";
  EXPECT_FALSE(guard.is_source_finite(unsafe, 0, map_with(kNan).data()));
}

// Kernels that take any numbers, but for those of other groups.
class PlainKernel : public HidingKernel {
 public:
  bool hides_nan() const override { return false; }
};
class MixingKernel : public PlainKernel {
 public:
  bool mixes_groups() const override { return true; }
};

// Pad lanes of the output would hold NaN: 0 times infinity.
TEST(NanGuard, LooksAtTheSourceWhereOthersThanTheDefinitionsProductsAreMade) {
  const auto bound_after = [](const ConvolutionKernel& kernel, int64_t out_channels) {
    const ConvolutionShape shape{.in_channels = kChannels,
                                 .out_channels = out_channels,
                                 .in_height = 2,
                                 .in_width = 2,
                                 .out_height = 2,
                                 .out_width = 2};
    const NanGuard guard(shape, {}, kernel);
    const std::vector<float> map = map_with(-2);
    cpu::Run run = run_with(kUnbounded, 0);
    EXPECT_TRUE(guard.is_safe(run, {.source = 0, .source_data = map.data()}));
    return run.bounds.front();
  };
  EXPECT_EQ(bound_after(PlainKernel(), 16), kUnbounded) << "it is not read";
  EXPECT_EQ(bound_after(PlainKernel(), 17), 2) << "pad lanes";
  EXPECT_EQ(bound_after(MixingKernel(), 16), 2);
  EXPECT_EQ(bound_after(PairsKernel(), 16), 2);
}

TEST(NanGuard, LooksAtTheResidualOnlyWhereTheSourceDoesNotSettleIt) {
  const std::vector<float> source = map_with(-2), residual = map_with(5);
  cpu::Run known = run_with(kUnbounded, 10);
  EXPECT_TRUE(small_guard().is_safe(known, {.source = 0, .source_data = source.data(), .residual = 1}));
  EXPECT_EQ(known.bounds, (std::vector<float>{2, 10}));
  cpu::Run unknown = run_with(kUnbounded, kUnbounded);
  EXPECT_TRUE(small_guard().is_safe(
      unknown, {.source = 0, .source_data = source.data(), .residual = 1, .residual_data = residual.data()}));
  EXPECT_EQ(unknown.bounds, (std::vector<float>{2, 5}));
}

TEST(NanGuard, WhatIsNotANumberOrMayOverflowIsNotSafe) {
  const std::vector<float> small = map_with(1);
  for (const float bad : {kNan, kUnbounded, -kUnbounded, 3e38F}) {
    const std::vector<float> map = map_with(bad);
    cpu::Run source = run_with(kUnbounded, kUnbounded), residual = source;
    EXPECT_FALSE(small_guard().is_safe(
        source, {.source = 0, .source_data = map.data(), .residual = 1, .residual_data = small.data()}));
    EXPECT_FALSE(small_guard().is_safe(
        residual, {.source = 0, .source_data = small.data(), .residual = 1, .residual_data = map.data()}));
  }
}

// Kernels that mix results add inputs, and weights, before they multiply.
TEST(NanGuard, LargeFactorsAreNotSafeWhereTheirProductsAreSmall) {
  const ConvolutionShape shape{.in_channels = kChannels,
                               .out_channels = kChannels,
                               .in_height = 2,
                               .in_width = 2,
                               .out_height = 2,
                               .out_width = 2};
  const auto is_safe = [&](float input, float weight) {
    NanGuard guard(shape, {}, HidingKernel());
    guard.set_weights(std::vector<float>(kChannels * kChannels, weight).data(), nullptr);
    const std::vector<float> map(kChannels * kPixels, input);
    cpu::Run run = run_with(kUnbounded, 0);
    return guard.is_safe(run, {.source = 0, .source_data = map.data()});
  };
  EXPECT_TRUE(is_safe(1e20F, 1e-20F));
  EXPECT_TRUE(is_safe(1e-20F, 1e20F));
  EXPECT_FALSE(is_safe(2e38F, 1e-30F));
  EXPECT_FALSE(is_safe(1e-30F, 1e37F));
}

}  // namespace
}  // namespace trainyard::nn::cpu::nan_guard_test
