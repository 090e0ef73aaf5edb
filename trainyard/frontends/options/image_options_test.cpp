#include "trainyard/frontends/options/image_options.h"

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::image_options_test {
namespace {

data::TransformOptions read(const std::vector<std::string>& arguments, const std::string& dataset = "imagenet") {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), arguments);
  return read_image_options(values).transform(dataset, dataset == "imagenet" ? 224 : 32);
}

std::string refusal(const std::vector<std::string>& arguments, const std::string& dataset = "imagenet") {
  try {
    read(arguments, dataset);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}

TEST(ImageOptions, DefaultsAreTfCnnBenchmarks) {
  const data::TransformOptions options = read({});
  EXPECT_EQ(options.height, 224);
  EXPECT_EQ(options.resize_method, "bilinear");
  EXPECT_EQ(options.eval_resize_size, 0);
  EXPECT_TRUE(options.distortions && options.distort_color_in_yiq && options.fuse_decode_and_crop && options.use_boxes);
  EXPECT_EQ(options.crop.method, data::CropMethod::kDistortedBoundingBox);
  EXPECT_EQ(options.crop.min_object_covered, 0.1F);
  EXPECT_EQ(options.crop.max_attempts, 100);
  EXPECT_EQ(options.normalization, data::Normalization::symmetric());
}

TEST(ImageOptions, SwitchesOfDecodingAndColoursAreThoseOfTheFlags) {
  const data::TransformOptions options =
      read({"--nofuse_decode_and_crop", "--nodistort_color_in_yiq", "--nodistortions"});
  EXPECT_FALSE(options.fuse_decode_and_crop);
  EXPECT_FALSE(options.distort_color_in_yiq);
  EXPECT_FALSE(options.distortions);
  EXPECT_FALSE(options.random_part);
  EXPECT_TRUE(options.use_boxes);
  EXPECT_FALSE(read({"--nofuse_decode_and_crop"}, "coco").fuse_decode_and_crop);
  EXPECT_TRUE(read({"--distort_color_in_yiq", "--input_preprocessor=resnet_n"}).distort_color_in_yiq);
}

TEST(ImageOptions, ImagesWithBoxesHaveTheInputOfSsd) {
  const data::TransformOptions options = read({}, "coco");
  EXPECT_EQ(options.normalization,
            data::Normalization::standardized(data::kImagenetMean, data::kImagenetStandardDeviation));
  EXPECT_EQ(read({"--ml_perf"}, "coco").normalization, options.normalization) << "MLPerf's SSD has the same";
  EXPECT_EQ(read({"--normalization=symmetric"}, "coco").normalization, data::Normalization::symmetric());
  EXPECT_FALSE(read({"--nodistortions"}, "coco").distortions);
  for (const char* flag : {"--random_crop=resized_crop", "--random_crop_area=0.1,1", "--eval_resize_size=320",
                           "--input_preprocessor=torchvision", "--min_object_covered=0.5", "--exif_orientation"}) {
    EXPECT_NE(refusal({flag}, "coco").find("has no use for data set coco"), std::string::npos) << flag;
  }
}

TEST(ImageOptions, GivenFlagsStandOverThePreprocessor) {
  data::TransformOptions options = read({"--input_preprocessor=torchvision"});
  EXPECT_TRUE(options.scaled_decode);
  EXPECT_FALSE(read({"--input_preprocessor=torchvision", "--noscaled_decode"}).scaled_decode);
  EXPECT_FALSE(read({}).scaled_decode);
  EXPECT_FALSE(options.distortions);
  EXPECT_EQ(options.eval_resize_size, 256);
  EXPECT_EQ(options.crop.max_attempts, 10);
  EXPECT_TRUE(options.resize_antialias && options.resize_half_pixel_centers);
  options = read({"--input_preprocessor=torchvision", "--distortions", "--eval_resize_size=232", "--resize_method=area",
                  "--random_crop=distorted_bounding_box", "--random_crop_area=0.2,0.9", "--min_object_covered=0.3",
                  "--random_crop_aspect_ratio=0.5,2", "--random_crop_attempts=7", "--normalization=symmetric",
                  "--noresize_antialias", "--noresize_half_pixel_centers"});
  EXPECT_TRUE(options.distortions);
  EXPECT_EQ(options.eval_resize_size, 232);
  EXPECT_EQ(options.resize_method, "area");
  EXPECT_FALSE(options.resize_antialias || options.resize_half_pixel_centers);
  EXPECT_EQ(options.crop.method, data::CropMethod::kDistortedBoundingBox);
  EXPECT_EQ(options.crop.min_area, 0.2F);
  EXPECT_EQ(options.crop.max_area, 0.9F);
  EXPECT_EQ(options.crop.min_object_covered, 0.3F);
  EXPECT_EQ(options.crop.min_aspect_ratio, 0.5F);
  EXPECT_EQ(options.crop.max_aspect_ratio, 2);
  EXPECT_EQ(options.crop.max_attempts, 7);
  EXPECT_EQ(options.normalization, data::Normalization::symmetric());
}

// 256 pixels are for images of 224: a fixed size would cut ever smaller parts out.
TEST(ImageOptions, ThePreprocessorsResizeFollowsTheSizeOfTheImages) {
  const auto resized = [](const std::vector<std::string>& arguments, nn::Size2d size) {
    const core::FlagValues values = core::parse_flags(tf_cnn_flags(), arguments);
    return read_image_options(values).transform("imagenet", size).eval_resize_size;
  };
  for (const char* preset : {"official_models_imagenet", "dali", "paddle", "tensorpack", "torchvision"}) {
    const std::string flag = std::string("--input_preprocessor=") + preset;
    EXPECT_EQ(resized({flag}, 224), 256) << preset;
    EXPECT_EQ(resized({flag}, 96), 110) << preset;
    EXPECT_EQ(resized({flag}, 299), 342) << preset;
    EXPECT_EQ(resized({flag}, {160, 288}), 329) << "of the longer side";
    EXPECT_EQ(resized({flag, "--eval_resize_size=128"}, 96), 128) << "what is given stays";
    EXPECT_EQ(resized({flag, "--eval_resize_size=0"}, 96), 0) << preset;
  }
  EXPECT_EQ(resized({}, 96), 0);
  EXPECT_EQ(resized({"--input_preprocessor=resnet_n"}, 96), 0);
}

TEST(ImageOptions, FlagsAloneKeepTheOfficialModelsSize) {
  ImageOptions asked;
  asked.input_preprocessor = "official_models_imagenet";
  asked.fixed_eval_size = true;
  EXPECT_EQ(asked.transform("imagenet", 227).eval_resize_size, 256);
  EXPECT_EQ(asked.transform("imagenet", 299).eval_resize_size, 342) << "256 would not reach";
}

TEST(ImageOptions, ExifOrientationIsOnInOurCommandsAlone) {
  ImageOptions asked;
  EXPECT_FALSE(asked.transform("imagenet", 224).exif_orientation);
  asked.turns_by_exif = true;
  EXPECT_TRUE(asked.transform("imagenet", 224).exif_orientation);
  EXPECT_TRUE(asked.transform("cifar10", 32).exif_orientation);
  EXPECT_FALSE(asked.transform("coco", 300).exif_orientation) << "boxes count from the corner of the stored image";
  asked.exif_orientation = false;
  EXPECT_FALSE(asked.transform("imagenet", 224).exif_orientation);
  EXPECT_TRUE(read({"--exif_orientation"}).exif_orientation);
  for (const Dialect dialect : {Dialect::kTrainyard, Dialect::kTfCnnBenchmarks}) {
    const TfCnnOptions options =
        read_options(core::parse_flags(tf_cnn_flags(), {"--model=trivial", "--data_dir=x"}), dialect);
    EXPECT_EQ(options.input.images.turns_by_exif, dialect == Dialect::kTrainyard);
  }
}

TEST(ImageOptions, ScaledDecodingIsForTrainingUnlessItIsAskedFor) {
  const data::TransformOptions preset = read({"--input_preprocessor=torchvision"});
  EXPECT_TRUE(preset.scaled_decode);
  EXPECT_FALSE(preset.eval_scaled_decode) << "torchvision's evaluation decodes whole images";
  EXPECT_TRUE(read({"--scaled_decode"}).eval_scaled_decode);
}

TEST(ImageOptions, Normalizations) {
  using data::Normalization;
  EXPECT_EQ(read({"--normalization=mean"}).normalization, Normalization::minus_mean(data::kImagenetChannelMeans));
  EXPECT_EQ(read({"--normalization=mean", "--image_mean=1,2,3"}).normalization, Normalization::minus_mean({1, 2, 3}));
  EXPECT_EQ(read({"--normalization=mean_std"}).normalization,
            Normalization::standardized(data::kImagenetMean, data::kImagenetStandardDeviation));
  EXPECT_EQ(read({"--normalization=mean_std", "--image_mean=1,2,3", "--image_std=4,5,6.5"}, "cifar10").normalization,
            Normalization::standardized({1, 2, 3}, {4, 5, 6.5F}));
  const data::TransformOptions mlperf = read({"--ml_perf"});
  EXPECT_FALSE(mlperf.use_boxes);
  EXPECT_EQ(mlperf.normalization, Normalization::minus_mean(data::kImagenetChannelMeans));
  EXPECT_EQ(read({"--ml_perf", "--normalization=symmetric"}).normalization, Normalization::symmetric());
}

TEST(ImageOptions, Augmentation) {
  data::TransformOptions options = read({}, "cifar10");
  EXPECT_EQ(options.auto_augment.policy, data::AutoAugmentPolicy::kNone);
  EXPECT_EQ(options.random_erasing.probability, 0);
  options = read({"--auto_augment=rand", "--rand_augment_num_ops=3", "--rand_augment_magnitude=15",
                  "--auto_augment_interpolation=bilinear", "--auto_augment_fill=1,2,3", "--random_erasing=0.25",
                  "--random_erasing_value=random"});
  EXPECT_EQ(options.auto_augment.policy, data::AutoAugmentPolicy::kRand);
  EXPECT_EQ(options.auto_augment.num_ops, 3);
  EXPECT_EQ(options.auto_augment.magnitude, 15);
  EXPECT_EQ(options.auto_augment.pixels.sampling, data::AugmentSampling::kBilinear);
  EXPECT_EQ(options.auto_augment.pixels.fill, (data::Rgb{1, 2, 3}));
  EXPECT_EQ(options.random_erasing.probability, 0.25F);
  EXPECT_EQ(options.random_erasing.value, data::ErasedValue::kPixelNoise);
  EXPECT_EQ(options.random_erasing.max_area, 0.33F) << "torchvision's";
  EXPECT_EQ(read({"--auto_augment=trivial"}).auto_augment.policy, data::AutoAugmentPolicy::kTrivial);
}

TEST(ImageOptions, FlipsTranslationAndCutout) {
  data::TransformOptions options = read({}, "cifar10");
  EXPECT_FALSE(options.flip || options.translate);
  EXPECT_EQ(options.cutout, 0);
  options = read({"--flip=alternating", "--translate=2", "--cutout=12"}, "cifar10");
  EXPECT_EQ(options.flip, data::Flip::kAlternating);
  EXPECT_EQ(options.translate, 2);
  EXPECT_EQ(options.cutout, 12);
  EXPECT_EQ(read({"--flip=random"}).flip, data::Flip::kRandom);
  options = read({"--flip=none", "--cutout=30"});
  EXPECT_EQ(options.flip, data::Flip::kNone);
  EXPECT_EQ(options.cutout, 30);
  EXPECT_NE(refusal({"--translate=2"}).find("no use for data set imagenet"), std::string::npos);
  EXPECT_NE(refusal({"--translate=32"}, "cifar10").find("0 to 31 pixels"), std::string::npos);
  EXPECT_NE(refusal({"--cutout=33"}, "cifar10").find("0 to 32 pixels"), std::string::npos);
  for (const char* flag : {"--flip=none", "--translate=2", "--cutout=3"}) {
    EXPECT_NE(refusal({flag}, "coco").find("no use for data set coco"), std::string::npos) << flag;
  }
}

TEST(ImageOptions, TimmsRandAugmentAndErasing) {
  const std::vector<std::string> flags = {"--auto_augment=timm_rand", "--rand_augment_magnitude_std=0.5",
                                          "--rand_augment_increasing"};
  data::TransformOptions options = read(flags);
  EXPECT_EQ(options.auto_augment.policy, data::AutoAugmentPolicy::kTimmRand);
  EXPECT_EQ(options.auto_augment.num_ops, 2);
  EXPECT_EQ(options.auto_augment.magnitude, 9);
  EXPECT_EQ(options.auto_augment.magnitude_std, 0.5F);
  EXPECT_TRUE(options.auto_augment.increasing);
  EXPECT_EQ(options.auto_augment.pixels.sampling, data::AugmentSampling::kRandom);
  EXPECT_EQ(options.auto_augment.pixels.fill, (data::Rgb{128, 128, 128})) << "of pixel / 127.5 - 1";
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  options = read(with({"--normalization=mean_std", "--auto_augment_interpolation=bicubic"}));
  EXPECT_EQ(options.auto_augment.pixels.fill, (data::Rgb{124, 116, 104})) << "timm rounds 255 times the mean";
  EXPECT_EQ(options.auto_augment.pixels.sampling, data::AugmentSampling::kBicubic);
  EXPECT_EQ(read(with({"--auto_augment_fill=1,2,3"})).auto_augment.pixels.fill, (data::Rgb{1, 2, 3}));
  EXPECT_NE(refusal(with({"--auto_augment_interpolation=nearest"})).find("bilinear, bicubic or random"),
            std::string::npos);
  EXPECT_NE(refusal(with({"--rand_augment_magnitude=11"})).find("0 to 10"), std::string::npos);
  EXPECT_NE(refusal({"--auto_augment=rand", "--auto_augment_interpolation=bicubic"}).find("nearest or bilinear"),
            std::string::npos);
  for (const char* flag : {"--rand_augment_magnitude_std=0.5", "--rand_augment_increasing"}) {
    EXPECT_NE(refusal({flag, "--auto_augment=rand"}).find("has no use"), std::string::npos) << flag;
  }
  using data::ErasedValue;
  for (const auto& [word, value] : {std::pair{"const", ErasedValue::kZero},
                                    {"rand", ErasedValue::kChannelNoise},
                                    {"pixel", ErasedValue::kPixelNoise}}) {
    const data::RandomErasingOptions erasing =
        read({"--random_erasing=0.25", std::string("--random_erasing_value=") + word}).random_erasing;
    EXPECT_EQ(erasing.value, value) << word;
    EXPECT_EQ(erasing.max_area, 1.0F / 3) << word;
    EXPECT_NEAR(erasing.max_aspect_ratio, 1 / 0.3, 1e-6) << word;
    EXPECT_NE(refusal({std::string("--random_erasing_value=") + word}).find("has no use"), std::string::npos) << word;
  }
}

TEST(ImageOptions, RefusesWhatHasNoUse) {
  for (const char* flag : {"--rand_augment_magnitude=3", "--rand_augment_num_ops=1", "--auto_augment_fill=1,2,3",
                           "--auto_augment_interpolation=bilinear", "--random_erasing_value=random"}) {
    EXPECT_NE(refusal({flag}).find("has no use"), std::string::npos) << flag;
  }
  EXPECT_NE(refusal({"--auto_augment=rand", "--auto_augment_fill=1,2,300"}).find("255"), std::string::npos);
  EXPECT_NE(refusal({"--image_mean=1,2,3"}).find("--normalization=mean"), std::string::npos);
  EXPECT_NE(refusal({"--image_std=1,2,3", "--normalization=mean"}).find("mean_std"), std::string::npos);
  EXPECT_NE(refusal({"--normalization=mean", "--image_mean=1,2"}).find("wrong number of values"), std::string::npos);
  EXPECT_NE(refusal({"--normalization=mean", "--image_mean=1,b,2"}).find("list of floats"), std::string::npos);
  EXPECT_NE(refusal({"--normalization=mean_std", "--image_std=0,1,1"}).find("above 0"), std::string::npos);
  EXPECT_NE(refusal({"--random_crop=resized_crop", "--min_object_covered=0.5"}).find("no use"), std::string::npos);
  EXPECT_NE(refusal({"--random_crop_area=0.5,0.1"}).find("not ranges"), std::string::npos);
  EXPECT_NE(refusal({"--eval_resize_size=200"}).find("at least 224"), std::string::npos);
  EXPECT_NE(refusal({"--resize_method=lanczos"}).find("lanczos"), std::string::npos);
  for (const char* flag : {"--eval_resize_size=40", "--random_crop=resized_crop", "--input_preprocessor=dali"}) {
    EXPECT_NE(refusal({flag}, "cifar10").find("no use for data set cifar10"), std::string::npos) << flag;
  }
  EXPECT_THROW(read({"--input_preprocessor=slim"}), core::Error);
}

TEST(ImageOptions, SaysWhyADataSetHasNoUseForAFlag) {
  EXPECT_EQ(refusal({"--random_crop_area=0.1,1"}, "cifar10"),
            "--random_crop_area has no use for data set cifar10: expected a data set of images of any size, got images "
            "of a fixed size");
  EXPECT_EQ(refusal({"--random_crop_area=0.1,1"}, "coco"),
            "--random_crop_area has no use for data set coco: expected a data set without boxes, got images with "
            "boxes");
  EXPECT_EQ(refusal({"--translate=2"}),
            "--translate has no use for data set imagenet: expected cifar10 or shapes, got images of any size, of "
            "which a random crop is taken");
  for (const std::string dataset : {"cifar10", "shapes"}) {
    for (const std::string flag : {"--resize_method=nearest", "--resize_antialias", "--resize_half_pixel_centers",
                                   "--eval_resize_size=40", "--input_preprocessor=dali", "--random_crop=resized_crop",
                                   "--random_crop_area=0.1,1", "--random_crop_aspect_ratio=0.5,2",
                                   "--random_crop_attempts=7", "--min_object_covered=0.5", "--scaled_decode"}) {
      const std::string expected = flag.substr(0, flag.find('=')) + " has no use for data set " + dataset;
      EXPECT_TRUE(refusal({flag}, dataset).starts_with(expected)) << flag << ": " << refusal({flag}, dataset);
    }
  }
  // What is given as it is by default asks for nothing.
  for (const std::string flag :
       {"--resize_method=bilinear", "--noresize_antialias", "--noresize_half_pixel_centers", "--eval_resize_size=0",
        "--input_preprocessor=default", "--random_crop=distorted_bounding_box", "--random_crop_attempts=100",
        "--min_object_covered=0.1", "--noscaled_decode"}) {
    EXPECT_EQ(refusal({flag}, "cifar10"), "") << flag;
  }
  EXPECT_EQ(read({"--resize_method=nearest"}, "coco").resize_method, "nearest") << "images with boxes have any size";
}

TEST(ImageOptions, AnEvaluationIsOfASizeOrOfACentralPart) {
  EXPECT_GT(read({"--input_preprocessor=resnet_n"}).eval_central_part, 0);
  const data::TransformOptions sized = read({"--input_preprocessor=resnet_n", "--eval_resize_size=256"});
  EXPECT_EQ(sized.eval_central_part, 0);
  EXPECT_EQ(sized.eval_resize_size, 256);
}

TEST(ImageOptions, HeightAndWidthStayApart) {
  const core::FlagValues values = core::parse_flags(tf_cnn_flags(), {});
  const data::TransformOptions options = read_image_options(values).transform("imagenet", {160, 288});
  EXPECT_EQ(options.height, 160);
  EXPECT_EQ(options.width, 288);
  const data::TransformOptions turned = evaluation_at(options, {288, 160});
  EXPECT_EQ(turned.height, 288);
  EXPECT_EQ(turned.width, 160);
}

TEST(ImageOptions, TheModelSaysWhatFlagsDoNot) {
  const TrainedInput trained{.input = read({"--input_preprocessor=torchvision", "--resize_method=bicubic"}),
                             .preprocessor = "torchvision",
                             .origin = "run/model.ckpt-5"};
  const auto made = [&](const std::vector<std::string>& arguments, nn::Size2d size) {
    ImageOptions options = read_image_options(core::parse_flags(tf_cnn_flags(), arguments));
    options.trained = trained;
    return options.transform("imagenet", size);
  };
  const data::TransformOptions same = made({}, 224);
  EXPECT_TRUE(evaluation_differences(trained.input, same).empty());
  EXPECT_EQ(same.crop.method, data::CropMethod::kResizedCrop) << "training images are the preprocessor's, too";
  EXPECT_FALSE(same.distortions);
  // A flag stands over it, and so does a preprocessor, as a whole.
  const data::TransformOptions larger = made({"--eval_resize_size=320", "--scaled_decode"}, 224);
  EXPECT_EQ(evaluation_differences(trained.input, larger),
            (std::vector<std::string>{"eval_resize_size is 320 instead of 256", "scaled_decode is on instead of off"}));
  const data::TransformOptions other = made({"--input_preprocessor=official_models_imagenet"}, 224);
  EXPECT_EQ(other.resize_method, "bilinear");
  EXPECT_EQ(other.normalization, data::Normalization::minus_mean(data::kImagenetChannelMeans));
  EXPECT_FALSE(other.resize_antialias);
  // The part that is cut out stays the same at another size.
  EXPECT_EQ(made({}, 112).eval_resize_size, 128);
  EXPECT_EQ(made({}, {112, 448}).eval_resize_size, 512);
  EXPECT_EQ(made({"--eval_resize_size=200"}, 112).eval_resize_size, 200);
}

TEST(ImageOptions, EachDifferenceIsNamed) {
  data::TransformOptions before = read({}), now = before;
  before.eval_central_part = 0.5F;
  before.normalization = data::Normalization::standardized({1, 2, 3}, {4, 8, 16});
  now.height = 96;
  now.width = 128;
  now.resize_method = "area";
  now.resize_antialias = now.resize_half_pixel_centers = true;
  now.eval_resize_size = 300;
  now.eval_central_part = 0.25F;
  before.resize_convention = data::ResizeConvention::kPlain;
  now.resize_convention = data::ResizeConvention::kDali;
  now.eval_scaled_decode = now.exif_orientation = true;
  now.normalization = data::Normalization::minus_mean({1, 2, 3});
  EXPECT_EQ(evaluation_differences(before, now),
            (std::vector<std::string>{
                "image_size is 96x128 instead of 224x224", "resize_method is area instead of bilinear",
                "resize_antialias is on instead of off", "resize_half_pixel_centers is on instead of off",
                "eval_resize_size is 300 instead of 0", "the central part is 0.25 instead of 0.5",
                "the convention of resizing is dali instead of plain", "scaled_decode is on instead of off",
                "exif_orientation is on instead of off",
                "normalization is mean (1, 2, 3) instead of mean_std (1, 2, 3; 4, 8, 16)"}));
  ::testing::internal::CaptureStderr();
  warn_of_differences({.input = before}, now);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "nobody knows what it was trained on";
}

TEST(ImageOptions, DifferencesAreToldOnceWithBothValues) {
  const TrainedInput trained{.input = read({}), .origin = "run/model.ckpt-5"};
  data::TransformOptions now = trained.input;
  now.height = 96;
  now.normalization = data::Normalization::minus_mean({1, 2, 3});
  ::testing::internal::CaptureStderr();
  warn_of_differences(trained, trained.input);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  warn_of_differences(trained, now);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("otherwise than run/model.ckpt-5 was trained on: image_size is 96x224 instead of 224x224, "
                      "normalization is mean (1, 2, 3) instead of symmetric"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace trainyard::frontends::image_options_test
