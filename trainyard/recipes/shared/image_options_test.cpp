#include "trainyard/recipes/shared/image_options.h"

#include <map>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/recipes/shared/image_flags.h"
#include "trainyard/recipes/tf_cnn/flags.h"
#include "trainyard/recipes/tf_cnn/read_options.h"

namespace trainyard::recipes {
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
  asked.exif_orientation = false;
  EXPECT_FALSE(asked.transform("imagenet", 224).exif_orientation);
  EXPECT_TRUE(read({"--exif_orientation"}).exif_orientation);
  for (const Dialect dialect : {Dialect::kTrainyard, Dialect::kTfCnnBenchmarks}) {
    const TfCnnOptions options = read_options(core::parse_flags(tf_cnn_flags(), {"--model=trivial"}), dialect);
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
  EXPECT_TRUE(options.auto_augment.pixels.bilinear);
  EXPECT_EQ(options.auto_augment.pixels.fill, (data::Rgb{1, 2, 3}));
  EXPECT_EQ(options.random_erasing.probability, 0.25F);
  EXPECT_TRUE(options.random_erasing.noise);
  EXPECT_EQ(read({"--auto_augment=trivial"}).auto_augment.policy, data::AutoAugmentPolicy::kTrivial);
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

// What a checkpoint holds, in memory.
class Entries : public core::StateWriter, public core::StateReader {
 public:
  void tensor(const std::string&, const at::Tensor&) override {}
  void integer(const std::string& name, int64_t value) override { integers_[name] = value; }
  void real(const std::string& name, double value) override { reals_[name] = value; }
  void text(const std::string& name, std::string_view value) override { texts_[name] = value; }
  bool has(const std::string& name) const override {
    return texts_.contains(name) || integers_.contains(name) || reals_.contains(name);
  }
  std::vector<std::string> names(std::string_view) const override { return {}; }
  void tensor(const std::string&, at::Tensor&) const override {}
  at::Tensor tensor(const std::string&) const override { return {}; }
  int64_t integer(const std::string& name) const override { return integers_.at(name); }
  double real(const std::string& name) const override { return reals_.at(name); }
  std::string text(const std::string& name) const override { return texts_.at(name); }
  void copy(const std::string&, core::StateWriter&, const std::string&) const override {}

 private:
  std::map<std::string, int64_t> integers_;
  std::map<std::string, double> reals_;
  std::map<std::string, std::string> texts_;
};

TEST(ImageOptions, ACheckpointRemembersEvaluation) {
  const data::TransformOptions saved = read({"--input_preprocessor=dali", "--resize_method=bicubic"});
  Entries entries;
  save_evaluation_options(saved, entries);
  data::TransformOptions loaded;
  load_evaluation_options(entries, loaded);
  EXPECT_EQ(loaded.resize_method, "bicubic");
  EXPECT_TRUE(loaded.resize_antialias && loaded.resize_half_pixel_centers);
  EXPECT_EQ(loaded.eval_resize_size, 256);
  EXPECT_EQ(loaded.normalization, saved.normalization);
  EXPECT_EQ(loaded.resize_convention, data::ResizeConvention::kDali);
  EXPECT_FALSE(loaded.exif_orientation || loaded.eval_scaled_decode);
  EXPECT_TRUE(same_evaluation(loaded, saved));
  EXPECT_FALSE(same_evaluation(loaded, {}));
  data::TransformOptions turned = saved;
  turned.exif_orientation = turned.eval_scaled_decode = true;
  EXPECT_FALSE(same_evaluation(turned, saved));
  save_evaluation_options(turned, entries);
  load_evaluation_options(entries, loaded);
  EXPECT_TRUE(loaded.exif_orientation && loaded.eval_scaled_decode);
  data::TransformOptions untouched;
  load_evaluation_options(Entries(), untouched);
  EXPECT_EQ(untouched.normalization, data::Normalization::symmetric());
}

}  // namespace
}  // namespace trainyard::recipes
