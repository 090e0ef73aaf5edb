// The text of transforms: each option that changes what images go through changes its line.
#include "trainyard/data/augment/describe_transform.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/augment/auto_augment.h"

namespace trainyard::data::describe_transform_test {
namespace {

using ::testing::Contains, ::testing::ElementsAre, ::testing::Not;

TEST(DescribeTransform, ListsTorchvisionsTrainingInOrder) {
  TransformOptions options = input_presets().get("torchvision");
  options.set_size(176, 176);
  options.auto_augment.policy = AutoAugmentPolicy::kTrivial;
  options.random_erasing.probability = 0.1F;
  EXPECT_THAT(
      describe_transform("imagenet", options),
      ElementsAre("resized_crop area=0.08..1 aspect=0.75..1.33333 attempts=10",
                  "resize 176x176 bilinear antialias half_pixel_centers", "mirror p=0.5",
                  "trivial_augment nearest fill=0,0,0", "normalize mean=123.675,116.28,103.53 std=58.395,57.12,57.375",
                  "random_erasing p=0.1 area=0.02..0.33 aspect=0.3..3.3 zeros"));
  options.flip = Flip::kNone;
  options.cutout = 16;
  options.random_erasing.value = ErasedValue::kPixelNoise;
  options.auto_augment = {.policy = AutoAugmentPolicy::kRand, .num_ops = 3, .magnitude = 7};
  options.auto_augment.pixels = {.sampling = AugmentSampling::kBilinear, .fill = {1, 2, 3}};
  const std::vector<std::string> others = describe_transform("imagenet", options);
  EXPECT_THAT(others, Not(Contains("mirror p=0.5")));
  EXPECT_THAT(others, Contains("cutout 16x16"));
  EXPECT_THAT(others, Contains("rand_augment operations=3 magnitude=7 of 30 bilinear fill=1,2,3"));
  EXPECT_THAT(others, Contains("random_erasing p=0.1 area=0.02..0.33 aspect=0.3..3.3 noise"));
}

TEST(DescribeTransform, ListsTimmsAugmentation) {
  TransformOptions options;
  options.auto_augment = {.policy = AutoAugmentPolicy::kTimmRand, .magnitude = 7, .magnitude_std = 0.5F};
  options.auto_augment.pixels = {.sampling = AugmentSampling::kRandom, .fill = {124, 116, 104}};
  options.random_erasing = {.probability = 0.25F, .value = ErasedValue::kChannelNoise};
  EXPECT_THAT(describe_transform("imagenet", options),
              Contains("timm_rand_augment operations=2 magnitude=7 std=0.5 drawn fill=124,116,104"));
  EXPECT_THAT(describe_transform("imagenet", options),
              Contains("random_erasing p=0.25 area=0.02..0.33 aspect=0.3..3.3 noise_by_channel"));
  options.auto_augment.increasing = true;
  options.auto_augment.pixels.sampling = AugmentSampling::kBicubic;
  EXPECT_THAT(describe_transform("imagenet", options),
              Contains("timm_rand_augment operations=2 magnitude=7 std=0.5 increasing bicubic fill=124,116,104"));
}

TEST(DescribeTransform, ListsTheEvaluationOfEachKind) {
  TransformOptions options = input_presets().get("torchvision");
  options.training = false;
  options.eval_resize_size = 232;
  EXPECT_THAT(describe_transform("imagenet", options),
              ElementsAre("resize shorter_side=232 bilinear antialias half_pixel_centers", "centre_crop 224x224",
                          "normalize mean=123.675,116.28,103.53 std=58.395,57.12,57.375"));
  options = input_presets().get("resnet_n");
  options.training = false;
  EXPECT_THAT(describe_transform("imagenet", options),
              ElementsAre("central_part 0.8", "resize 224x224 bilinear", "normalize mean=0,0,0 std=1,1,1"));
  options = {.training = false};
  EXPECT_THAT(describe_transform("imagenet", options),
              ElementsAre("resize both_sides_at_least=1.145_times_the_crop bilinear", "centre_crop 224x224",
                          "normalize mean=127.5,127.5,127.5 std=127.5,127.5,127.5"));
}

TEST(DescribeTransform, ListsTfCnnBenchmarksAndSmallImages) {
  EXPECT_THAT(describe_transform("imagenet", {}),
              ElementsAre("distorted_bounding_box area=0.05..1 aspect=0.75..1.33 attempts=100 covered=0.1",
                          "resize 224x224 bilinear", "mirror p=0.5",
                          "distort_colors brightness saturation hue contrast yiq alternating_order",
                          "normalize mean=127.5,127.5,127.5 std=127.5,127.5,127.5"));
  TransformOptions small{.height = 32, .width = 32};
  EXPECT_THAT(describe_transform("cifar10", small),
              ElementsAre("resize 32x32 where it differs", "pad 4 zeros", "random_crop 32x32", "mirror p=0.5",
                          "normalize mean=127.5,127.5,127.5 std=127.5,127.5,127.5"));
  small.translate = 2;
  small.flip = Flip::kAlternating;
  EXPECT_THAT(describe_transform("cifar10", small),
              ElementsAre("resize 32x32 where it differs", "translate 2 reflected", "mirror alternating",
                          "normalize mean=127.5,127.5,127.5 std=127.5,127.5,127.5"));
  EXPECT_EQ(core::code_of([] { (void)describe_transform("coco", {}); }), core::ErrorCode::kUnsupported);
}

TEST(DescribeTransform, ListsHeightBeforeWidthAndWhatIsSeldomAskedFor) {
  const char* const normalize = "normalize mean=127.5,127.5,127.5 std=127.5,127.5,127.5";
  TransformOptions options{.height = 48,
                           .width = 64,
                           .resize_method = "crop",
                           .use_boxes = false,
                           .distort_color_in_yiq = false,
                           .alternate_color_order = false};
  EXPECT_THAT(
      describe_transform("imagenet", options),
      ElementsAre("distorted_bounding_box area=0.05..1 aspect=0.75..1.33 attempts=100 covered=0.1 without_boxes",
                  "centre_crop_or_pad 48x64", "mirror p=0.5", "distort_colors brightness saturation hue contrast hsv",
                  normalize));
  EXPECT_THAT(describe_transform("cifar10", options), ElementsAre("resize 48x64 where it differs", "pad 4 zeros",
                                                                  "random_crop 48x64", "mirror p=0.5", normalize));
  options.distortions = false;
  EXPECT_THAT(describe_transform("shapes", options), ElementsAre("resize 48x64 where it differs", normalize))
      << "neither cropped nor mirrored";
  options.training = false;
  EXPECT_THAT(describe_transform("imagenet", options), ElementsAre("centre_crop_or_pad 48x64", normalize));
  EXPECT_THAT(describe_transform("cifar10", options), ElementsAre("resize 48x64 where it differs", normalize));
  options.resize_method = "area";
  EXPECT_THAT(describe_transform("imagenet", options),
              ElementsAre("resize both_sides_at_least=1.145_times_the_crop area", "centre_crop 48x64", normalize));
}

TEST(DescribeTransform, NamesThePoliciesOfAutoAugment) {
  for (const std::string name : {"imagenet", "cifar10", "svhn"}) {
    TransformOptions options;
    options.auto_augment.policy = auto_augment_policy(name);
    EXPECT_THAT(describe_transform("imagenet", options), Contains("auto_augment " + name + " nearest fill=0,0,0"));
  }
}

}  // namespace
}  // namespace trainyard::data::describe_transform_test
