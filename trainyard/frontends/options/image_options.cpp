#include "trainyard/frontends/options/image_options.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/data/augment/auto_augment.h"
#include "trainyard/frontends/options/number_list.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kImageGroup = "Images";

void declare_scaled_decode(core::FlagTable& table, const std::string& otherwise) {
  table
      .boolean(
          "scaled_decode", false,
          "decode JPEGs at 1/2, 1/4 or 1/8 of their size where the crop is twice the model's size or more: faster, "
          "with other pixels")
      .automatic(otherwise)
      .group(kImageGroup);
}

core::FlagSpec& declare_input_preprocessor(core::FlagTable& table) {
  return table
      .text(
          "input_preprocessor", "default",
          "how images of ImageNet become input: default (tf_cnn_benchmarks), official_models_imagenet, resnet_n, dali, "
          "paddle, tensorpack or torchvision; flags that are given stand over it")
      .group(kImageGroup);
}

void declare_crop_flags(core::FlagTable& table) {
  table
      .choice("random_crop", "distorted_bounding_box", {"distorted_bounding_box", "resized_crop"},
              "how training windows are drawn on ImageNet: as TensorFlow's sample_distorted_bounding_box, or as "
              "torchvision's RandomResizedCrop")
      .automatic("distorted_bounding_box, or the preprocessor's")
      .group(kImageGroup);
  table.list("random_crop_area", "least and most of the image that a training window takes: 0.05,1")
      .automatic("0.05,1, or the preprocessor's")
      .group(kImageGroup);
  table.list("random_crop_aspect_ratio", "least and greatest width / height of a training window: 0.75,1.33")
      .automatic("0.75,1.33, or the preprocessor's")
      .group(kImageGroup);
  table.integer("random_crop_attempts", 100, "draws after which resizing starts from the whole image")
      .automatic("100, or the preprocessor's")
      .bounds(1, 1'000'000)
      .group(kImageGroup);
  table
      .real("min_object_covered", 0.1,
            "part of a bounding box, or of an image without any, that a training window covers at least; for "
            "--random_crop=distorted_bounding_box")
      .bounds(0, 1)
      .group(kImageGroup);
  table.boolean("fuse_decode_and_crop", true, "decode only the part of a JPEG that the crop keeps").group(kImageGroup);
  declare_scaled_decode(table,
                        "in training on with the inputs that crop as torchvision does (dali, paddle, tensorpack, "
                        "torchvision), unless decoded images are cached; off in evaluation");
}

void declare_augmentation_flags(core::FlagTable& table) {
  table
      .choice("auto_augment", "none", {"none", "rand", "trivial"},
              "in training, after crop, flip and colours: RandAugment, or TrivialAugmentWide, as torchvision defines "
              "them")
      .group(kImageGroup);
  table.integer("rand_augment_num_ops", 2, "operations on an image with --auto_augment=rand")
      .bounds(1, 100)
      .group(kImageGroup);
  table.integer("rand_augment_magnitude", 9, "their strength, of 30").bounds(0, 30).group(kImageGroup);
  table
      .choice("auto_augment_interpolation", "nearest", {"nearest", "bilinear"},
              "how --auto_augment samples shears, translations and rotations")
      .group(kImageGroup);
  table.list("auto_augment_fill", "red, green and blue, of 255, of what they bring in from outside the image")
      .automatic("0,0,0")
      .group(kImageGroup);
  table
      .real(
          "random_erasing", 0,
          "probability in training that a part of the normalized image is overwritten, as torchvision's RandomErasing")
      .bounds(0, 1)
      .group(kImageGroup);
  table
      .choice("random_erasing_value", "zero", {"zero", "random"},
              "what --random_erasing writes: zeros, or normal numbers")
      .group(kImageGroup);
}

// `otherwise` says, for --help, where a value comes from that is not given.
void declare_evaluated_images(core::FlagTable& table, const std::string& otherwise) {
  table
      .text("resize_method", "bilinear",
            "nearest, bilinear, bicubic, area; round_robin: each of them in turn along a batch; crop: nothing is "
            "scaled, the centre is cut out or padded")
      .automatic("bilinear, or " + otherwise)
      .group(kImageGroup);
  table
      .boolean("resize_antialias", false,
               "average all pixels under a shrunk one in bilinear and bicubic resizing, as Pillow and DALI do")
      .automatic("off, or " + otherwise)
      .group(kImageGroup);
  table
      .boolean("resize_half_pixel_centers", false,
               "count places from pixels' centres in resizing, as TensorFlow 2, torchvision and OpenCV do; off: "
               "TensorFlow 1")
      .automatic("off, or " + otherwise)
      .group(kImageGroup);
  table
      .integer("eval_resize_size", 0,
               "pixels of the shorter side to which ImageNet's evaluation resizes before it cuts the centre out (256 "
               "for models of 224); 0: 1.145 times the model's side")
      .automatic("0, or " + otherwise + ", in its ratio to the size of the images")
      .bounds(0, 65'535)
      .group(kImageGroup);
  table
      .boolean("exif_orientation", false,
               "turn JPEGs, WebPs and TIFFs as their EXIF data say, which is how viewers show photographs of cameras")
      .automatic(otherwise)
      .group(kImageGroup);
  table
      .choice("normalization", "symmetric", {"symmetric", "mean", "mean_std"},
              "what models take: pixel / 127.5 - 1, pixel - mean, or (pixel - mean) / standard deviation")
      .automatic("symmetric, or " + otherwise)
      .group(kImageGroup);
  table.list("image_mean", "mean of red, green and blue, of 255, with --normalization=mean or mean_std")
      .automatic("ImageNet's: 123.68,116.78,103.94 for mean, 123.675,116.28,103.53 for mean_std")
      .group(kImageGroup);
  table.list("image_std", "standard deviation of red, green and blue, of 255, with --normalization=mean_std")
      .automatic("ImageNet's: 58.395,57.12,57.375")
      .group(kImageGroup);
}

std::vector<double> read_list(const core::FlagValues& values, const std::string& flag, size_t count) {
  std::vector<double> numbers = read_numbers<double>(values, flag, core::FlagKind::kReal, "floats");
  if (numbers.size() == count) return numbers;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("--{} has the wrong number of values", flag),
                     .expected = std::to_string(count),
                     .actual = std::to_string(numbers.size())});
}

std::optional<ImageOptions::Range> read_range(const core::FlagValues& values, const std::string& flag) {
  if (!values.given(flag)) return std::nullopt;
  const std::vector<double> numbers = read_list(values, flag, 2);
  return ImageOptions::Range{static_cast<float>(numbers[0]), static_cast<float>(numbers[1])};
}

std::optional<data::Rgb> read_rgb(const core::FlagValues& values, const std::string& flag) {
  if (!values.given(flag)) return std::nullopt;
  const std::vector<double> numbers = read_list(values, flag, 3);
  return data::Rgb{static_cast<float>(numbers[0]), static_cast<float>(numbers[1]), static_cast<float>(numbers[2])};
}

std::optional<bool> given_boolean(const core::FlagValues& values, const char* flag) {
  return values.given(flag) ? values.optional_boolean(flag) : std::nullopt;
}

std::optional<int> given_int(const core::FlagValues& values, const char* flag) {
  if (!values.given(flag)) return std::nullopt;
  return static_cast<int>(values.integer(flag));
}

}  // namespace

void declare_trained_image_flags(core::FlagTable& table) {
  const std::string otherwise = "as the model was trained";
  declare_input_preprocessor(table).automatic(otherwise);
  declare_evaluated_images(table, otherwise);
  declare_scaled_decode(table, otherwise);
}

void declare_image_flags(core::FlagTable& table) {
  declare_input_preprocessor(table);
  declare_evaluated_images(table, "the preprocessor's");
  table.set_automatic("exif_orientation", "on in trainyard's commands, off with flags alone as in tf_cnn_benchmarks");
  declare_crop_flags(table);
  table
      .boolean(
          "distortions", true,
          "random colours in training (on CIFAR: random crop and flip); ImageNet's random crop and flip are always on")
      .automatic("on with --input_preprocessor=default")
      .group(kImageGroup);
  table.boolean("distort_color_in_yiq", true, "turn hue and saturation in the YIQ colour space instead of HSV")
      .automatic("on but with --input_preprocessor=resnet_n")
      .group(kImageGroup);
  declare_augmentation_flags(table);
  table
      .boolean("ml_perf", false,
               "MLPerf's input: crops ignore bounding boxes, and --normalization is mean unless it is given")
      .group(kImageGroup);
}

EvaluationImageOptions read_evaluation_options(const core::FlagValues& values) {
  EvaluationImageOptions options;
  if (values.given("input_preprocessor")) options.input_preprocessor = values.text("input_preprocessor");
  if (values.given("resize_method")) options.resize_method = values.text("resize_method");
  options.resize_antialias = given_boolean(values, "resize_antialias");
  options.resize_half_pixel_centers = given_boolean(values, "resize_half_pixel_centers");
  if (values.given("eval_resize_size")) options.eval_resize_size = values.integer("eval_resize_size");
  options.exif_orientation = given_boolean(values, "exif_orientation");
  if (values.given("normalization")) options.normalization = values.text("normalization");
  options.image_mean = read_rgb(values, "image_mean");
  options.image_std = read_rgb(values, "image_std");
  options.scaled_decode = given_boolean(values, "scaled_decode");
  return options;
}

ImageOptions read_image_options(const core::FlagValues& values) {
  ImageOptions options{read_evaluation_options(values)};
  if (values.given("random_crop")) {
    options.random_crop = values.text("random_crop") == "resized_crop" ? data::CropMethod::kResizedCrop
                                                                       : data::CropMethod::kDistortedBoundingBox;
  }
  options.random_crop_area = read_range(values, "random_crop_area");
  options.random_crop_aspect_ratio = read_range(values, "random_crop_aspect_ratio");
  options.random_crop_attempts = given_int(values, "random_crop_attempts");
  if (values.given("min_object_covered")) {
    options.min_object_covered = static_cast<float>(values.real("min_object_covered"));
  }
  options.distortions = given_boolean(values, "distortions");
  if (values.given("distort_color_in_yiq")) options.distort_color_in_yiq = values.boolean("distort_color_in_yiq");
  options.fuse_decode_and_crop = values.boolean("fuse_decode_and_crop");
  options.auto_augment = data::auto_augment_policy(values.text("auto_augment"));
  options.rand_augment_num_ops = given_int(values, "rand_augment_num_ops");
  options.rand_augment_magnitude = given_int(values, "rand_augment_magnitude");
  options.auto_augment_bilinear = values.text("auto_augment_interpolation") == "bilinear";
  options.auto_augment_fill = read_rgb(values, "auto_augment_fill");
  options.random_erasing = static_cast<float>(values.real("random_erasing"));
  options.random_erasing_noise = values.text("random_erasing_value") == "random";
  options.ml_perf = values.boolean("ml_perf");
  return options;
}

}  // namespace trainyard::frontends
