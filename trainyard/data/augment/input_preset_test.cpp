#include <utility>

#include <gtest/gtest.h>

#include "trainyard/data/augment/transform.h"

namespace trainyard::data::input_preset_test {
namespace {

TEST(InputPreset, AllAreValidFor224) {
  for (const std::string& name : input_presets().names()) {
    TransformOptions options = input_presets().get(name);
    options.height = options.width = 224;
    EXPECT_NO_THROW(options.validate()) << name;
    EXPECT_NO_THROW(transforms().get("imagenet")(options)) << name;
  }
}

// The values that the originals' sources state.
TEST(InputPreset, HoldTheOriginalsValues) {
  const TransformOptions& standard = input_presets().get("default");
  EXPECT_EQ(standard.crop.method, CropMethod::kDistortedBoundingBox);
  EXPECT_FALSE(standard.scaled_decode);
  EXPECT_TRUE(standard.distortions && standard.distort_color_in_yiq && standard.use_boxes);
  EXPECT_EQ(standard.normalization, Normalization::symmetric());

  const TransformOptions& official = input_presets().get("official_models_imagenet");
  EXPECT_EQ(official.eval_resize_size, 256);
  EXPECT_EQ(official.resize_convention, ResizeConvention::kTensorflow);
  EXPECT_FALSE(official.distortions || official.scaled_decode);
  EXPECT_EQ(official.normalization, Normalization::minus_mean({123.68F, 116.78F, 103.94F}));

  const TransformOptions& dali = input_presets().get("dali");
  EXPECT_EQ(dali.crop.method, CropMethod::kResizedCrop);
  EXPECT_EQ(dali.crop.min_area, 0.05F);
  EXPECT_EQ(dali.crop.max_aspect_ratio, 1.25F);
  EXPECT_EQ(dali.normalization, Normalization::standardized({123.68F, 116.78F, 103.94F}, {58.4F, 57.12F, 57.3F}));

  const TransformOptions& resnet_n = input_presets().get("resnet_n");
  EXPECT_EQ(resnet_n.crop.method, CropMethod::kDistortedBoundingBox);
  EXPECT_EQ(resnet_n.crop.min_area, 0.1F);
  EXPECT_EQ(resnet_n.crop.min_aspect_ratio, 0.8F);
  EXPECT_EQ(resnet_n.crop.max_aspect_ratio, 1.25F);
  EXPECT_EQ(resnet_n.eval_central_part, 0.8F);
  EXPECT_FALSE(resnet_n.use_boxes || resnet_n.distortions || resnet_n.distort_color_in_yiq ||
               resnet_n.alternate_color_order);
  EXPECT_EQ(resnet_n.normalization, (Normalization{.scale = {1, 1, 1}, .shift = {0, 0, 0}}));

  for (const auto& [name, attempts] :
       {std::pair{"dali", 100}, {"paddle", 100}, {"tensorpack", 10}, {"torchvision", 10}}) {
    EXPECT_EQ(input_presets().get(name).crop.max_attempts, attempts) << name;
  }

  for (const char* name : {"paddle", "tensorpack", "torchvision"}) {
    const TransformOptions& options = input_presets().get(name);
    EXPECT_EQ(options.crop.min_area, 0.08F) << name;
    EXPECT_TRUE(options.scaled_decode) << name;
    EXPECT_EQ(options.eval_resize_size, 256) << name;
    EXPECT_EQ(options.normalization, Normalization::standardized(kImagenetMean, kImagenetStandardDeviation)) << name;
  }
}

}  // namespace
}  // namespace trainyard::data::input_preset_test
