#include "trainyard/data/augment/crop_margin.h"

#include <cmath>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/worst.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::crop_margin_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

TransformOptions evaluation_of(const std::string& preset) {
  TransformOptions options = input_presets().get(preset);
  options.training = false;
  return options;
}

TEST(CropMargin, KeepsWhatTheCentralCropRemoves) {
  for (const char* preset : {"default", "dali", "torchvision", "official_models_imagenet", "tensorpack"}) {
    const TransformOptions wide = with_crop_margin(evaluation_of(preset), "imagenet");
    EXPECT_EQ(wide.height, 256) << preset;
    EXPECT_EQ(wide.width, 256) << preset;
    wide.validate();
  }
  const TransformOptions part = with_crop_margin(evaluation_of("resnet_n"), "imagenet");
  EXPECT_EQ(part.height, 280);  // 224 / 0.8
  EXPECT_EQ(part.eval_central_part, 1);
  TransformOptions oblong = evaluation_of("torchvision");
  oblong.height = 112;
  EXPECT_EQ(with_crop_margin(oblong, "imagenet").height, 128);
  EXPECT_EQ(with_crop_margin(oblong, "imagenet").width, 256);
}

// The centre of the wide image is the image of a plain evaluation, for landscape, portrait and square.
TEST(CropMargin, ItsCentreIsThePlainEvaluation) {
  for (const char* preset : {"default", "dali", "torchvision", "tensorpack"}) {
    TransformOptions options = evaluation_of(preset);
    options.set_size(56, 56);
    const TransformOptions wide = with_crop_margin(options, "imagenet");
    const auto plain_transform = transforms().get("imagenet")(options),
               wide_transform = transforms().get("imagenet")(wide);
    for (const auto& [height, width] : {std::pair{90, 130}, {130, 90}, {100, 100}}) {
      const Record record{.encoding = Encoding::kPng, .bytes = encode_png(noisy_image(height, width))};
      std::vector<float> plain(size_t{3} * 56 * 56), whole(static_cast<size_t>(3 * wide.height * wide.width));
      ASSERT_TRUE(plain_transform->apply(record, {}, plain.data()).ok());
      ASSERT_TRUE(wide_transform->apply(record, {}, whole.data()).ok());
      const int64_t top = (wide.height - 56) / 2, left = (wide.width - 56) / 2;
      double worst = 0;
      for (int64_t c = 0; c < 3; ++c) {
        for (int64_t y = 0; y < 56; ++y) {
          for (int64_t x = 0; x < 56; ++x) {
            const float a = plain[static_cast<size_t>((c * 56 + y) * 56 + x)],
                        b = whole[static_cast<size_t>((c * wide.height + top + y) * wide.width + left + x)];
            core::take_worst(worst, std::abs(static_cast<double>(a - b)) / options.normalization.scale[0]);
          }
        }
      }
      EXPECT_LT(worst, 1e-3) << preset << " " << height << " x " << width << ", in pixel values";
    }
  }
}

TEST(CropMargin, RefusesWhatHasNone) {
  for (const char* transform : {"cifar10", "shapes"}) {
    EXPECT_THAT(core::message_of([&] { (void)with_crop_margin({.height = 32, .width = 32}, transform); }),
                AllOf(HasSubstr("--tta=flip"), Not(HasSubstr("--eval_resize_size"))));
  }
  TransformOptions tight = evaluation_of("torchvision");
  tight.eval_resize_size = 224;
  EXPECT_THAT(core::message_of([&] { (void)with_crop_margin(tight, "imagenet"); }),
              AllOf(HasSubstr("more than 224 pixels"), HasSubstr("a larger --eval_resize_size, or --tta=flip")));
}

}  // namespace
}  // namespace trainyard::data::crop_margin_test
