#include "trainyard/data/augment/auto_augment.h"

#include <array>
#include <cmath>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/augment/auto_augment_pairs.h"

namespace trainyard::data::auto_augment_test {
namespace {

TEST(AutoAugment, MagnitudesAreTorchvisions) {
  std::istringstream lines(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/augment_magnitudes.txt")));
  std::map<std::string, AugmentOp> ops;
  for (int i = 0; i < kAugmentOps; ++i) {
    ops[std::string(augment_op_name(static_cast<AugmentOp>(i)))] = static_cast<AugmentOp>(i);
  }
  std::string policy, op;
  int bin = 0, is_signed = 0, count = 0;
  float magnitude = 0;
  while (lines >> policy >> op >> bin >> magnitude >> is_signed) {
    ASSERT_TRUE(ops.contains(op)) << op;
    EXPECT_NEAR(magnitude_of(auto_augment_policy(policy), ops[op], bin, {200, 224}), magnitude, 2e-5)
        << policy << " " << op << " " << bin;
    ++count;
  }
  EXPECT_EQ(count, 2 * 14 * 6);
}

TEST(AutoAugment, RandDrawsEveryOperationAlikeAtOneMagnitude) {
  const AutoAugmentOptions options{.policy = AutoAugmentPolicy::kRand, .num_ops = 3, .magnitude = 9};
  core::RandomStream random(1, "auto_augment");
  std::array<int, kAugmentOps> drawn{}, negative{};
  constexpr int kImages = 20'000;
  for (int i = 0; i < kImages; ++i) {
    const auto steps = draw_steps(options, {224, 224}, random);
    ASSERT_EQ(steps.size(), 3u);
    for (const AugmentStep& step : steps) {
      ++drawn[static_cast<size_t>(step.op)];
      negative[static_cast<size_t>(step.op)] += step.magnitude < 0 ? 1 : 0;
      EXPECT_EQ(std::abs(step.magnitude), magnitude_of(options.policy, step.op, 9, {224, 224}));
    }
  }
  EXPECT_EQ(drawn[static_cast<size_t>(AugmentOp::kInvert)], 0);
  const double expected = 3.0 * kImages / 14;
  double chi_squared = 0;
  for (int op = 0; op < 14; ++op) chi_squared += (drawn[op] - expected) * (drawn[op] - expected) / expected;
  EXPECT_LT(chi_squared, 45);  // 13 degrees of freedom: one run in 50,000
  for (int op = 0; op < 14; ++op) {
    const bool has_sign = op >= static_cast<int>(AugmentOp::kShearX) && op <= static_cast<int>(AugmentOp::kSharpness);
    EXPECT_NEAR(negative[op], has_sign ? drawn[op] / 2.0 : 0, 5 * std::sqrt(expected / 4)) << op;
  }
}

TEST(AutoAugment, TrivialDrawsOneOperationAtEveryMagnitude) {
  const AutoAugmentOptions options{.policy = AutoAugmentPolicy::kTrivial};
  core::RandomStream random(1, "auto_augment");
  std::map<float, int> angles;
  for (int i = 0; i < 50'000; ++i) {
    const auto steps = draw_steps(options, {224, 224}, random);
    ASSERT_EQ(steps.size(), 1u);
    if (steps[0].op == AugmentOp::kRotate) ++angles[steps[0].magnitude];
  }
  EXPECT_EQ(angles.size(), 61u);  // -135 to 135 in steps of 4.5, -0 and 0 as one
  EXPECT_EQ(angles.begin()->first, -135);
}

TEST(AutoAugment, PairsAreTorchvisions) {
  std::istringstream lines(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/augment_pairs.txt")));
  std::string policy, op;
  size_t pair = 0, count = 0;
  double probability = 0, magnitude = 0;
  while (lines >> policy >> pair >> op >> probability >> magnitude) {
    const AutoAugmentPolicy which = auto_augment_policy(policy);
    ASSERT_LT(pair, auto_augment_pairs(which).size());
    const AutoAugmentOperation& each = auto_augment_pairs(which)[pair][count++ % 2];
    EXPECT_EQ(augment_op_name(each.op), op) << policy << " " << pair;
    EXPECT_DOUBLE_EQ(each.tenths / 10.0, probability) << policy << " " << pair;
    EXPECT_NEAR(magnitude_of(which, each.op, each.magnitude, {200, 224}), magnitude, 2e-5) << policy << " " << pair;
  }
  EXPECT_EQ(count, 3U * 25 * 2);
}

TEST(AutoAugment, DrawsEachPairAndOperationInItsPartOfTheImages) {
  core::RandomStream random(1, "auto_augment");
  constexpr int kImages = 50'000;
  // By length: both operations' parts are independent. Invert is in the 14th pair (0.6), the 18th (0.6) and the 23rd
  // (0.6) of ImageNet's alone.
  int inverted = 0, negative = 0, turned = 0;
  std::array<int, 3> lengths{};
  for (int i = 0; i < kImages; ++i) {
    const auto steps = draw_steps({.policy = AutoAugmentPolicy::kImagenet}, {224, 224}, random);
    ASSERT_LE(steps.size(), 2U);
    ++lengths[steps.size()];
    for (const AugmentStep& step : steps) {
      inverted += step.op == AugmentOp::kInvert ? 1 : 0;
      turned += step.op == AugmentOp::kRotate ? 1 : 0;
      negative += step.op == AugmentOp::kRotate && step.magnitude < 0 ? 1 : 0;
    }
  }
  double both = 0, none = 0;
  for (const AutoAugmentPair& pair : auto_augment_pairs(AutoAugmentPolicy::kImagenet)) {
    both += pair[0].tenths / 10.0 * pair[1].tenths / 10.0 / 25;
    none += (1 - pair[0].tenths / 10.0) * (1 - pair[1].tenths / 10.0) / 25;
  }
  const auto expect_part = [](int count, double part) {
    EXPECT_NEAR(count, kImages * part, 5 * std::sqrt(kImages * part * (1 - part)));
  };
  expect_part(lengths[2], both);
  expect_part(lengths[0], none);
  expect_part(inverted, 3 * 0.6 / 25);
  EXPECT_NEAR(negative, turned / 2.0, 5 * std::sqrt(turned) / 2);
}

TEST(AutoAugment, NoneDrawsNothing) {
  core::RandomStream random(1, "auto_augment");
  EXPECT_TRUE(draw_steps({}, {224, 224}, random).empty());
}

TEST(AutoAugment, RefusesBadOptions) {
  EXPECT_NO_THROW(AutoAugmentOptions{}.validate());
  EXPECT_THROW(AutoAugmentOptions{.num_ops = 0}.validate(), core::Error);
  EXPECT_THROW(AutoAugmentOptions{.magnitude = kMagnitudeBins}.validate(), core::Error);
  EXPECT_THROW(auto_augment_policy("fast"), core::Error);
  const auto refusal = [](const AutoAugmentOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(refusal({.num_ops = 1, .magnitude = kMagnitudeBins - 1}), "no error");
  EXPECT_EQ(refusal({.magnitude = 0}), "no error");
  EXPECT_THAT(refusal({.num_ops = 3, .magnitude = 31}),
              core::Says("at least 1 operation, a magnitude of 0 to 30, got 3 and 31"));
  EXPECT_THAT(refusal({.magnitude = -1}), core::Says("at least 1 operation, a magnitude of 0 to 30, got 2 and -1"));
  const AutoAugmentOptions timm{.policy = AutoAugmentPolicy::kTimmRand,
                                .magnitude = kMostTimmLevel,
                                .pixels = {.sampling = AugmentSampling::kBilinear, .fill = {0, 255, 0}}};
  EXPECT_EQ(refusal(timm), "no error");
  AutoAugmentOptions wrong = timm;
  wrong.magnitude = 11;
  EXPECT_THAT(refusal(wrong), core::Says("at least 1 operation, a magnitude of 0 to 10, got 2 and 11"));
  wrong = timm;
  wrong.magnitude_std = -0.5F;
  EXPECT_THAT(refusal(wrong), core::Says("expected 0 or more, got -0.5"));
  wrong.magnitude_std = INFINITY;
  EXPECT_NE(refusal(wrong), "no error");
  for (const float value : {-1.0F, 256.0F}) {
    wrong = timm;
    wrong.pixels.fill[2] = value;
    EXPECT_THAT(refusal(wrong), core::Says("expected values of 0 to 255, got " + std::to_string(int(value))));
  }
}

TEST(AutoAugment, EachPolicySamplesInItsWays) {
  using enum AugmentSampling;
  const auto takes = [](AutoAugmentPolicy policy, AugmentSampling sampling) {
    const AutoAugmentOptions options{.policy = policy, .pixels = {.sampling = sampling}};
    return !core::error_of([&] { options.validate(); }).has_value();
  };
  for (const AugmentSampling sampling : {kNearest, kBilinear, kBicubic, kRandom}) {
    EXPECT_EQ(takes(AutoAugmentPolicy::kTimmRand, sampling), sampling != kNearest);
    EXPECT_EQ(takes(AutoAugmentPolicy::kRand, sampling), sampling == kNearest || sampling == kBilinear);
  }
}

TEST(AutoAugment, PoliciesHaveNames) {
  using enum AutoAugmentPolicy;
  EXPECT_EQ(auto_augment_policy("none"), kNone);
  EXPECT_EQ(auto_augment_policy("rand"), kRand);
  EXPECT_EQ(auto_augment_policy("trivial"), kTrivial);
  EXPECT_EQ(auto_augment_policy("timm_rand"), kTimmRand);
  EXPECT_EQ(auto_augment_policy("imagenet"), kImagenet);
  EXPECT_EQ(auto_augment_policy("cifar10"), kCifar10);
  EXPECT_EQ(auto_augment_policy("svhn"), kSvhn);
}

}  // namespace
}  // namespace trainyard::data::auto_augment_test
