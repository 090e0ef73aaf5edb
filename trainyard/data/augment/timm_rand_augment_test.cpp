#include "trainyard/data/augment/timm_rand_augment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/augment/auto_augment.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::timm_rand_augment_test {
namespace {

AutoAugmentOptions timm_options(int magnitude = 9, float deviation = 0.5F) {
  return {.policy = AutoAugmentPolicy::kTimmRand,
          .magnitude = magnitude,
          .magnitude_std = deviation,
          .increasing = true,
          .pixels = {.sampling = AugmentSampling::kRandom}};
}

// Half of the draws are left out; what is left is each of 15 operations alike, with both signs and samplings.
TEST(TimmRandAugment, DrawsEachOperationAlikeAndLeavesHalfOut) {
  core::RandomStream random(1, "auto_augment");
  constexpr int kImages = 30'000;
  std::map<AugmentOp, int> drawn, negative, bicubic;
  std::array<int, 3> counts{};
  for (int i = 0; i < kImages; ++i) {
    const auto steps = draw_steps(timm_options(), {224, 224}, random);
    ASSERT_LE(steps.size(), 2U);
    ++counts[steps.size()];
    for (const AugmentStep& step : steps) {
      ++drawn[step.op];
      negative[step.op] += step.magnitude < 0 ? 1 : 0;
      bicubic[step.op] += step.sampling == AugmentSampling::kBicubic ? 1 : 0;
      EXPECT_TRUE(step.sampling == AugmentSampling::kBicubic || step.sampling == AugmentSampling::kBilinear);
    }
  }
  EXPECT_NEAR(counts[0], kImages / 4, 400) << "five standard deviations";
  EXPECT_NEAR(counts[1], kImages / 2, 450);
  EXPECT_NEAR(counts[2], kImages / 4, 400);
  ASSERT_EQ(drawn.size(), 15U);
  for (const AugmentOp op : kTimmOperations) {
    EXPECT_NEAR(drawn[op], kImages / 15, 220) << augment_op_name(op);
    EXPECT_NEAR(bicubic[op], kImages / 30, 170) << augment_op_name(op);
  }
  for (const AugmentOp op :
       {AugmentOp::kRotate, AugmentOp::kShearX, AugmentOp::kShearY, AugmentOp::kTranslateX, AugmentOp::kTranslateY}) {
    EXPECT_NEAR(negative[op], kImages / 30, 170) << augment_op_name(op);
  }
}

// The level of a shear is its slope / 0.03. At 9 with a deviation of 0.5, normal: 2.3 % are cut off at 10.
TEST(TimmRandAugment, LevelsAreNormalAndCutOff) {
  core::RandomStream random(2, "auto_augment");
  std::vector<double> levels;
  while (levels.size() < 20'000) {
    for (const AugmentStep& step : draw_steps(timm_options(), {224, 224}, random)) {
      if (step.op == AugmentOp::kShearX) levels.push_back(std::abs(step.magnitude) / 0.03);
    }
  }
  const auto below = [&](double level) {
    const auto count = std::count_if(levels.begin(), levels.end(), [&](double each) { return each < level; });
    return static_cast<double>(count) / static_cast<double>(levels.size());
  };
  for (const double level : {7.5, 8.0, 8.5, 9.0, 9.5, 9.999}) {
    EXPECT_NEAR(below(level), std::erfc(-(level - 9) / 0.5 / std::sqrt(2.0)) / 2, 0.02) << level;
  }
  EXPECT_NEAR(*std::max_element(levels.begin(), levels.end()), 10, 1e-9);
  EXPECT_NEAR(1 - below(10 - 1e-9), 0.0228, 0.006) << "cut off, and not drawn again";
  // Without a deviation all are the magnitude.
  for (int i = 0; i < 1000; ++i) {
    for (const AugmentStep& step : draw_steps(timm_options(7, 0), {224, 224}, random)) {
      if (step.op == AugmentOp::kRotate) {
        EXPECT_NEAR(std::abs(step.magnitude), 21, 1e-9);
      }
    }
  }
}

TEST(TimmRandAugment, SamplesAsItIsAskedTo) {
  core::RandomStream random(4, "auto_augment");
  for (const AugmentSampling sampling : {AugmentSampling::kBilinear, AugmentSampling::kBicubic}) {
    AutoAugmentOptions options = timm_options();
    options.pixels.sampling = sampling;
    int drawn = 0;
    for (int i = 0; i < 100; ++i) {
      for (const AugmentStep& step : draw_steps(options, {224, 224}, random)) {
        EXPECT_EQ(step.sampling, sampling);
        ++drawn;
      }
    }
    EXPECT_GT(drawn, 50);
  }
}

TEST(TimmRandAugment, RefusesWhatTimmDoesNotHave) {
  EXPECT_NO_THROW(timm_options().validate());
  EXPECT_THROW(timm_options(11).validate(), core::Error);
  EXPECT_THROW(timm_options(9, -1).validate(), core::Error);
  AutoAugmentOptions nearest = timm_options();
  nearest.pixels.sampling = AugmentSampling::kNearest;
  EXPECT_THROW(nearest.validate(), core::Error);
  AutoAugmentOptions torchvision{.policy = AutoAugmentPolicy::kRand, .pixels = {.sampling = AugmentSampling::kBicubic}};
  EXPECT_THROW(torchvision.validate(), core::Error);
}

// What is drawn is applied to training images, the same for a sample in each run, and another in each epoch.
TEST(TimmRandAugment, ChangesTrainingImages) {
  TransformOptions options{.height = 16, .width = 16, .distortions = false};
  options.auto_augment = timm_options();
  Record record{.encoding = Encoding::kRawChw, .height = 16, .width = 16};
  const Image image = noisy_image(16, 16);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = c; i < image.pixels.size(); i += 3) record.bytes.push_back(std::byte{image.pixels[i]});
  }
  const auto apply_to = [&](const TransformOptions& with, int64_t epoch) {
    std::vector<float> out(3 * 16 * 16);
    transforms().get("cifar10")(with)->apply(record, {.seed = 3, .epoch = epoch, .sample = 1}, out.data()).value();
    return out;
  };
  TransformOptions plain = options;
  plain.auto_augment = {};
  int changed = 0, drawn = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    const std::vector<float> out = apply_to(options, epoch);
    EXPECT_EQ(out, apply_to(options, epoch));
    changed += out != apply_to(plain, epoch) ? 1 : 0;
    drawn +=
        draw_transform("cifar10", options, record, {.seed = 3, .epoch = epoch, .sample = 1}).value().operations.empty()
            ? 0
            : 1;
  }
  EXPECT_GT(drawn, 20);
  EXPECT_LE(changed, drawn);
  EXPECT_GT(changed, drawn / 2);
}

}  // namespace
}  // namespace trainyard::data::timm_rand_augment_test
