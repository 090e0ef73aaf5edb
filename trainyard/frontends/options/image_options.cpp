#include "trainyard/frontends/options/image_options.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/option_flags.h"
#include "trainyard/data/augment/auto_augment.h"
#include "trainyard/frontends/options/number_list.h"

namespace trainyard::frontends {
namespace {

using core::FlagValues;

std::vector<double> read_list(const FlagValues& values, const std::string& flag, size_t count) {
  std::vector<double> numbers = read_numbers<double>(values, flag, core::FlagKind::kReal, "floats");
  if (numbers.size() == count) return numbers;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("--{} has the wrong number of values", flag),
                     .expected = std::to_string(count),
                     .actual = std::to_string(numbers.size())});
}

std::optional<ImageOptions::Range> read_range(const FlagValues& values, const std::string& flag) {
  if (!values.given(flag)) return std::nullopt;
  const std::vector<double> numbers = read_list(values, flag, 2);
  return ImageOptions::Range{static_cast<float>(numbers[0]), static_cast<float>(numbers[1])};
}

std::optional<data::Rgb> read_rgb(const FlagValues& values, const std::string& flag) {
  if (!values.given(flag)) return std::nullopt;
  const std::vector<double> numbers = read_list(values, flag, 3);
  return data::Rgb{static_cast<float>(numbers[0]), static_cast<float>(numbers[1]), static_cast<float>(numbers[2])};
}

data::AugmentSampling sampling_named(const std::string& word) {
  if (word == "bilinear") return data::AugmentSampling::kBilinear;
  if (word == "bicubic") return data::AugmentSampling::kBicubic;
  return word == "random" ? data::AugmentSampling::kRandom : data::AugmentSampling::kNearest;
}

// The next four add flags of evaluation: of a trained model, or among those of training. `otherwise` says, for --help,
// where a value comes from that is not given.
template <typename Options>
core::FlagSpec& add_input_preprocessor(core::OptionFlags<Options>& flags) {
  return flags.given(
      &EvaluationImageOptions::input_preprocessor,
      flags.table().text(
          "input_preprocessor", "default",
          "how images of ImageNet become input: default (tf_cnn_benchmarks), official_models_imagenet, resnet_n, dali, "
          "paddle, tensorpack or torchvision; flags that are given stand over it"));
}

template <typename Options>
void add_resizing(core::OptionFlags<Options>& flags, const std::string& otherwise) {
  flags
      .given(&EvaluationImageOptions::resize_method,
             flags.table().text(
                 "resize_method", "bilinear",
                 "nearest, bilinear, bicubic, area; round_robin: each of them in turn along a batch; crop: nothing is "
                 "scaled, the centre is cut out or padded"))
      .automatic("bilinear, or " + otherwise);
  flags
      .given(&EvaluationImageOptions::resize_antialias,
             flags.table().boolean(
                 "resize_antialias", false,
                 "average all pixels under a shrunk one in bilinear and bicubic resizing, as Pillow and DALI do"))
      .automatic("off, or " + otherwise);
  flags
      .given(&EvaluationImageOptions::resize_half_pixel_centers,
             flags.table().boolean(
                 "resize_half_pixel_centers", false,
                 "count places from pixels' centres in resizing, as TensorFlow 2, torchvision and OpenCV do; off: "
                 "TensorFlow 1"))
      .automatic("off, or " + otherwise);
  flags
      .given(&EvaluationImageOptions::eval_resize_size,
             flags.table().integer(
                 "eval_resize_size", 0,
                 "pixels of the shorter side to which ImageNet's evaluation resizes before it cuts the centre out (256 "
                 "for models of 224); 0: 1.145 times the model's side"))
      .automatic("0, or " + otherwise + ", in its ratio to the size of the images")
      .bounds(0, 65'535);
}

template <typename Options>
void add_normalization(core::OptionFlags<Options>& flags, const std::string& otherwise) {
  flags
      .given(&EvaluationImageOptions::exif_orientation,
             flags.table().boolean(
                 "exif_orientation", false,
                 "turn JPEGs, WebPs and TIFFs as their EXIF data say, which is how viewers show photographs of "
                 "cameras"))
      .automatic(otherwise);
  flags
      .given(&EvaluationImageOptions::normalization,
             flags.table().choice(
                 "normalization", "symmetric", {"symmetric", "mean", "mean_std"},
                 "what models take: pixel / 127.5 - 1, pixel - mean, or (pixel - mean) / standard deviation"))
      .automatic("symmetric, or " + otherwise);
  flags.table()
      .list("image_mean", "mean of red, green and blue, of 255, with --normalization=mean or mean_std")
      .automatic("ImageNet's: 123.68,116.78,103.94 for mean, 123.675,116.28,103.53 for mean_std")
      .group(flags.group());
  flags.table()
      .list("image_std", "standard deviation of red, green and blue, of 255, with --normalization=mean_std")
      .automatic("ImageNet's: 58.395,57.12,57.375")
      .group(flags.group());
  flags.also([](const FlagValues& values, Options& options) {
    options.image_mean = read_rgb(values, "image_mean");
    options.image_std = read_rgb(values, "image_std");
  });
}

template <typename Options>
void add_scaled_decode(core::OptionFlags<Options>& flags, const std::string& otherwise) {
  flags
      .given(&EvaluationImageOptions::scaled_decode,
             flags.table().boolean(
                 "scaled_decode", false,
                 "decode JPEGs at 1/2, 1/4 or 1/8 of their size where the crop is twice the model's size or more: "
                 "faster, with other pixels"))
      .automatic(otherwise);
}

core::OptionFlags<EvaluationImageOptions> make_evaluated_image_flags() {
  core::OptionFlags<EvaluationImageOptions> flags("Images");
  const std::string otherwise = "as the model was trained";
  add_input_preprocessor(flags).automatic(otherwise);
  add_resizing(flags, otherwise);
  add_normalization(flags, otherwise);
  add_scaled_decode(flags, otherwise);
  return flags;
}

void add_crop_flags(core::OptionFlags<ImageOptions>& flags) {
  flags.table()
      .choice("random_crop", "distorted_bounding_box", {"distorted_bounding_box", "resized_crop"},
              "how training windows are drawn on ImageNet: as TensorFlow's sample_distorted_bounding_box, or as "
              "torchvision's RandomResizedCrop")
      .automatic("distorted_bounding_box, or the preprocessor's")
      .group(flags.group());
  flags.table()
      .list("random_crop_area", "least and most of the image that a training window takes: 0.05,1")
      .automatic("0.05,1, or the preprocessor's")
      .group(flags.group());
  flags.table()
      .list("random_crop_aspect_ratio", "least and greatest width / height of a training window: 0.75,1.33")
      .automatic("0.75,1.33, or the preprocessor's")
      .group(flags.group());
  flags.also([](const FlagValues& values, ImageOptions& options) {
    if (values.given("random_crop")) {
      options.random_crop = values.text("random_crop") == "resized_crop" ? data::CropMethod::kResizedCrop
                                                                         : data::CropMethod::kDistortedBoundingBox;
    }
    options.random_crop_area = read_range(values, "random_crop_area");
    options.random_crop_aspect_ratio = read_range(values, "random_crop_aspect_ratio");
  });
  flags
      .given(
          &ImageOptions::random_crop_attempts,
          flags.table().integer("random_crop_attempts", 100, "draws after which resizing starts from the whole image"))
      .automatic("100, or the preprocessor's")
      .bounds(1, 1'000'000);
  flags
      .given(&ImageOptions::min_object_covered,
             flags.table().real(
                 "min_object_covered", 0.1,
                 "part of a bounding box, or of an image without any, that a training window covers at least; for "
                 "--random_crop=distorted_bounding_box"))
      .bounds(0, 1);
  flags.add("fuse_decode_and_crop", &ImageOptions::fuse_decode_and_crop,
            "decode only the part of a JPEG that the crop keeps");
  add_scaled_decode(flags,
                    "in training on with the inputs that crop as torchvision does (dali, paddle, tensorpack, "
                    "torchvision), unless decoded images are cached; off in evaluation");
}

void add_colour_flags(core::OptionFlags<ImageOptions>& flags) {
  flags
      .given(&ImageOptions::distortions,
             flags.table().boolean("distortions", true,
                                   "random colours in training (on CIFAR: random crop and flip; on COCO: all of them); "
                                   "ImageNet's random crop is always on; --flip says what is mirrored"))
      .automatic("on with --input_preprocessor=default");
  flags.table()
      .choice(
          "flip", "random", {"random", "alternating", "none"},
          "in training, which images are mirrored left to right: half of them, drawn in each epoch; half of them in "
          "even epochs and the others in odd ones; or none")
      .automatic("random; on CIFAR without --distortions none")
      .group(flags.group());
  flags.also([](const FlagValues& values, ImageOptions& options) {
    if (!values.given("flip")) return;
    const std::string word = values.text("flip");
    options.flip = word == "random"        ? data::Flip::kRandom
                   : word == "alternating" ? data::Flip::kAlternating
                                           : data::Flip::kNone;
  });
  flags
      .given(
          &ImageOptions::translate,
          flags.table().integer("translate", std::nullopt,
                                "in training on CIFAR, pixels by which an image is moved at most in each direction, "
                                "drawn in each epoch; what comes in is the image reflected at its edge. It takes the "
                                "place of the crop of --distortions, which pads with zeros"))
      .automatic("not set: the crop of --distortions")
      .bounds(0, 65'535);
  flags
      .add("cutout", &ImageOptions::cutout,
           "in training, side in pixels of a square of the normalized image that becomes zeros, at a random place; 0: "
           "none")
      .bounds(0, 65'535);
  flags
      .given(&ImageOptions::distort_color_in_yiq,
             flags.table().boolean("distort_color_in_yiq", true,
                                   "turn hue and saturation in the YIQ colour space instead of HSV"))
      .automatic("on but with --input_preprocessor=resnet_n");
}

void add_augmentation_flags(core::OptionFlags<ImageOptions>& flags) {
  flags.table()
      .choice(
          "auto_augment", "none", {"none", "rand", "trivial", "timm_rand", "imagenet", "cifar10", "svhn"},
          "in training, after crop, flip and colours: RandAugment, TrivialAugmentWide, or AutoAugment's policy for "
          "ImageNet, CIFAR-10 or SVHN, as torchvision defines them; timm_rand: RandAugment as timm and Pillow define "
          "it")
      .group(flags.group());
  flags
      .given(&ImageOptions::rand_augment_num_ops,
             flags.table().integer("rand_augment_num_ops", 2,
                                   "operations on an image with --auto_augment=rand or timm_rand"))
      .bounds(1, 100);
  flags
      .given(&ImageOptions::rand_augment_magnitude,
             flags.table().integer("rand_augment_magnitude", 9,
                                   "their strength: of 30, with --auto_augment=timm_rand of 10"))
      .bounds(0, 30);
  flags
      .add("rand_augment_magnitude_std", &ImageOptions::rand_augment_magnitude_std,
           "with --auto_augment=timm_rand, standard deviation of each operation's strength, which is drawn from a "
           "normal distribution and cut off at 0 and 10")
      .bounds(0, 100);
  flags.add(
      "rand_augment_increasing", &ImageOptions::rand_augment_increasing,
      "with --auto_augment=timm_rand, take the operations that change an image the more the higher the strength is "
      "(timm's inc1)");
  flags.table()
      .choice("auto_augment_interpolation", "nearest", {"nearest", "bilinear", "bicubic", "random"},
              "how --auto_augment samples shears, translations and rotations: nearest or bilinear, with timm_rand "
              "bilinear, bicubic, or random, which draws one of these for each operation")
      .automatic("nearest; with --auto_augment=timm_rand random")
      .group(flags.group());
  flags.table()
      .list("auto_augment_fill", "red, green and blue, of 255, of what they bring in from outside the image")
      .automatic("0,0,0; with --auto_augment=timm_rand the mean of the normalization")
      .group(flags.group());
  flags.also([](const FlagValues& values, ImageOptions& options) {
    options.auto_augment = data::auto_augment_policy(values.text("auto_augment"));
    options.auto_augment_fill = read_rgb(values, "auto_augment_fill");
    if (values.given("auto_augment_interpolation")) {
      options.auto_augment_sampling = sampling_named(values.text("auto_augment_interpolation"));
    }
  });
  flags
      .add("random_erasing", &ImageOptions::random_erasing,
           "probability in training that a part of the normalized image is overwritten, as torchvision's or timm's "
           "RandomErasing")
      .bounds(0, 1);
  using Written = ImageOptions::ErasedPart;
  flags.choice(
      "random_erasing_value", &ImageOptions::random_erasing_value,
      std::vector<std::pair<std::string, Written>>{{"zero", Written::kZero},
                                                   {"random", Written::kRandom},
                                                   {"const", Written::kTimmConst},
                                                   {"rand", Written::kTimmRand},
                                                   {"pixel", Written::kTimmPixel}},
      "what --random_erasing writes: zeros, or normal numbers (random), in parts as torchvision draws them; or, "
      "in parts as timm draws them, zeros (const), a normal number a channel (rand), or a pixel and channel "
      "(pixel)");
}

core::OptionFlags<ImageOptions> make_image_flags() {
  core::OptionFlags<ImageOptions> flags("Images");
  const std::string otherwise = "the preprocessor's";
  add_input_preprocessor(flags);
  add_resizing(flags, otherwise);
  add_normalization(flags, otherwise);
  flags.table().set_automatic("exif_orientation",
                              "on in trainyard's commands, off with flags alone as in tf_cnn_benchmarks");
  add_crop_flags(flags);
  add_colour_flags(flags);
  add_augmentation_flags(flags);
  flags.add("ml_perf", &ImageOptions::ml_perf,
            "MLPerf's input: crops ignore bounding boxes, and --normalization is mean unless it is given");
  return flags;
}

}  // namespace

void declare_trained_image_flags(core::FlagTable& table) {
  core::flags_of<make_evaluated_image_flags>().declare(table);
}

void declare_image_flags(core::FlagTable& table) {
  core::flags_of<make_image_flags>().declare(table);
}

EvaluationImageOptions read_evaluation_options(const FlagValues& values) {
  return core::flags_of<make_evaluated_image_flags>().read(values);
}

ImageOptions read_image_options(const FlagValues& values) {
  return core::flags_of<make_image_flags>().read(values);
}

}  // namespace trainyard::frontends
