#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/data/image/resize_convention.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kDefaultPreprocessor = "default";
constexpr auto kDefaultCrop = data::CropMethod::kDistortedBoundingBox;
constexpr float kDefaultCovered = 0.1F;
constexpr const char* kDefaultResize = "bilinear";
constexpr int kDefaultAttempts = 100, kDefaultOps = 2, kDefaultMagnitude = 9;

[[noreturn]] void refuse(const std::string& problem, const std::string& expected, const std::string& actual) {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .expected = expected, .actual = actual});
}

data::CropOptions crop_of(const ImageOptions& asked, data::CropOptions crop) {
  if (asked.random_crop) crop.method = *asked.random_crop;
  if (asked.random_crop_area) {
    crop.min_area = asked.random_crop_area->low;
    crop.max_area = asked.random_crop_area->high;
  }
  if (asked.random_crop_aspect_ratio) {
    crop.min_aspect_ratio = asked.random_crop_aspect_ratio->low;
    crop.max_aspect_ratio = asked.random_crop_aspect_ratio->high;
  }
  crop.max_attempts = asked.random_crop_attempts.value_or(crop.max_attempts);
  if (asked.min_object_covered && crop.method != data::CropMethod::kDistortedBoundingBox) {
    refuse("--min_object_covered has no use", "--random_crop=distorted_bounding_box", "resized_crop");
  }
  crop.min_object_covered = asked.min_object_covered.value_or(kDefaultCovered);
  return crop;
}

// Returns the pixel that normalization makes zero, in whole numbers, as timm's img_mean.
data::Rgb mean_of(const data::Normalization& normalization) {
  data::Rgb mean{};
  for (size_t c = 0; c < mean.size(); ++c) {
    const double mean_with_error = -double{normalization.shift[c]} / normalization.scale[c];
    const double exact = std::nearbyint(mean_with_error * 1000) / 1000;  // 127.5, not 127.49999
    mean[c] = static_cast<float>(std::clamp(std::nearbyint(exact), 0.0, 255.0));
  }
  return mean;
}

data::RandomErasingOptions erasing_of(const ImageOptions& asked) {
  using Part = ImageOptions::ErasedPart;
  data::RandomErasingOptions erasing{.probability = asked.random_erasing};
  const Part part = asked.random_erasing_value;
  if (part == Part::kRandom || part == Part::kTimmPixel) erasing.value = data::ErasedValue::kPixelNoise;
  if (part == Part::kTimmRand) erasing.value = data::ErasedValue::kChannelNoise;
  if (part == Part::kZero || part == Part::kRandom) return erasing;
  erasing.max_area = 1.0F / 3;
  erasing.max_aspect_ratio = 1 / erasing.min_aspect_ratio;
  return erasing;
}

void augment(const ImageOptions& asked, data::TransformOptions& options) {
  data::AutoAugmentOptions& augment = options.auto_augment;
  augment.policy = asked.auto_augment;
  augment.num_ops = asked.rand_augment_num_ops.value_or(kDefaultOps);
  augment.magnitude = asked.rand_augment_magnitude.value_or(kDefaultMagnitude);
  const bool timm = augment.policy == data::AutoAugmentPolicy::kTimmRand;
  augment.magnitude_std = asked.rand_augment_magnitude_std;
  augment.increasing = asked.rand_augment_increasing;
  augment.pixels.sampling =
      asked.auto_augment_sampling.value_or(timm ? data::AugmentSampling::kRandom : data::AugmentSampling::kNearest);
  augment.pixels.fill = asked.auto_augment_fill.value_or(timm ? mean_of(options.normalization) : data::Rgb{0, 0, 0});
  options.random_erasing = erasing_of(asked);
  const auto require = [](bool used, bool changed, const char* flag, const char* needed) {
    if (changed && !used) refuse(fmt::format("--{} has no use", flag), needed, "not given");
  };
  const bool rand = augment.policy == data::AutoAugmentPolicy::kRand || timm;
  const bool any = augment.policy != data::AutoAugmentPolicy::kNone;
  require(rand, augment.num_ops != kDefaultOps, "rand_augment_num_ops", "--auto_augment=rand or timm_rand");
  require(rand, augment.magnitude != kDefaultMagnitude, "rand_augment_magnitude", "--auto_augment=rand or timm_rand");
  require(timm, asked.rand_augment_magnitude_std != 0, "rand_augment_magnitude_std", "--auto_augment=timm_rand");
  require(timm, asked.rand_augment_increasing, "rand_augment_increasing", "--auto_augment=timm_rand");
  require(any, asked.auto_augment_sampling.value_or(data::AugmentSampling::kNearest) != data::AugmentSampling::kNearest,
          "auto_augment_interpolation", "--auto_augment other than none");
  require(any, asked.auto_augment_fill.has_value(), "auto_augment_fill", "--auto_augment other than none");
  require(asked.random_erasing > 0, asked.random_erasing_value != ImageOptions::ErasedPart::kZero,
          "random_erasing_value", "--random_erasing above 0");
}

// Images of CIFAR and shapes are resized in one way only, and their windows have one size.
bool has_small_images(const std::string& dataset) {
  return dataset == "cifar10" || dataset == "shapes";
}

// Images with boxes have crops of their own, which keep boxes.
bool has_own_crops(const std::string& dataset) {
  return has_small_images(dataset) || dataset == "coco";
}

void refuse_for_dataset(std::initializer_list<std::pair<const char*, bool>> changed, const std::string& dataset) {
  for (const auto& [flag, is_changed] : changed) {
    if (!is_changed) continue;
    const bool small = has_small_images(dataset);
    refuse(fmt::format("--{} has no use for data set {}", flag, dataset),
           small ? "a data set of images of any size" : "a data set without boxes",
           small ? "images of a fixed size" : "images with boxes");
  }
}

void check_crops(const ImageOptions& asked, const std::string& dataset) {
  if (asked.translate && !has_small_images(dataset)) {
    refuse(fmt::format("--translate has no use for data set {}", dataset), "cifar10 or shapes",
           "images of any size, of which a random crop is taken");
  }
  if (dataset == "coco") {
    refuse_for_dataset({{"flip", asked.flip.has_value()}, {"cutout", asked.cutout > 0}}, dataset);
  }
  if (!has_own_crops(dataset)) return;
  refuse_for_dataset(
      {{"random_crop", asked.random_crop.value_or(kDefaultCrop) != kDefaultCrop},
       {"random_crop_area", asked.random_crop_area.has_value()},
       {"random_crop_aspect_ratio", asked.random_crop_aspect_ratio.has_value()},
       {"random_crop_attempts", asked.random_crop_attempts.value_or(kDefaultAttempts) != kDefaultAttempts},
       {"min_object_covered", asked.min_object_covered.value_or(kDefaultCovered) != kDefaultCovered}},
      dataset);
}

}  // namespace

void EvaluationImageOptions::check(const std::string& dataset) const {
  if (!has_own_crops(dataset)) return;
  refuse_for_dataset({{"input_preprocessor", input_preprocessor.value_or(kDefaultPreprocessor) != kDefaultPreprocessor},
                      {"eval_resize_size", eval_resize_size.value_or(0) != 0}},
                     dataset);
  // Boxes count from the corner of the image as it is stored.
  if (dataset == "coco") refuse_for_dataset({{"exif_orientation", exif_orientation.value_or(false)}}, dataset);
  if (!has_small_images(dataset)) return;
  refuse_for_dataset({{"resize_method", resize_method.value_or(kDefaultResize) != kDefaultResize},
                      {"resize_antialias", resize_antialias.value_or(false)},
                      {"resize_half_pixel_centers", resize_half_pixel_centers.value_or(false)},
                      {"scaled_decode", scaled_decode.value_or(false)}},
                     dataset);
}

namespace {

// Applies all but the preprocessor.
void apply_values(const EvaluationImageOptions& asked, data::TransformOptions& options) {
  options.resize_method = asked.resize_method.value_or(options.resize_method);
  options.resize_antialias = asked.resize_antialias.value_or(options.resize_antialias);
  options.resize_half_pixel_centers = asked.resize_half_pixel_centers.value_or(options.resize_half_pixel_centers);
  options.eval_resize_size = asked.eval_resize_size.value_or(options.eval_resize_size);
  if (asked.eval_resize_size) options.eval_central_part = 0;
  options.scaled_decode = asked.scaled_decode.value_or(options.scaled_decode);
  options.eval_scaled_decode = asked.scaled_decode.value_or(options.eval_scaled_decode);
  options.exif_orientation = asked.exif_orientation.value_or(options.exif_orientation);
  const std::string kind = asked.normalization.value_or("");
  if (asked.image_mean && kind != "mean" && kind != "mean_std") {
    refuse("--image_mean has no use", "--normalization=mean or mean_std beside it", "'" + kind + "'");
  }
  if (asked.image_std && kind != "mean_std") {
    refuse("--image_std has no use", "--normalization=mean_std beside it", "'" + kind + "'");
  }
  if (kind == "symmetric") options.normalization = data::Normalization::symmetric();
  if (kind == "mean") {
    options.normalization = data::Normalization::minus_mean(asked.image_mean.value_or(data::kImagenetChannelMeans));
  }
  if (kind == "mean_std") {
    options.normalization = data::Normalization::standardized(
        asked.image_mean.value_or(data::kImagenetMean), asked.image_std.value_or(data::kImagenetStandardDeviation));
  }
}

}  // namespace

void EvaluationImageOptions::apply_to(data::TransformOptions& options) const {
  if (input_preprocessor) {
    data::TransformOptions preset = data::input_presets().get(*input_preprocessor);
    preset.set_size(options.height, options.width);
    preset.exif_orientation = options.exif_orientation;  // no preset decides it
    copy_evaluation(preset, options);
  }
  apply_values(*this, options);
}

std::string ImageOptions::preprocessor() const {
  if (input_preprocessor) return *input_preprocessor;
  const bool known = trained && !trained->preprocessor.empty();
  return known ? trained->preprocessor : std::string(kDefaultPreprocessor);
}

data::TransformOptions ImageOptions::transform(const std::string& dataset, nn::Size2d image_size) const {
  check(dataset);
  check_crops(*this, dataset);
  data::TransformOptions options = data::input_presets().get(preprocessor());
  const int64_t resized = options.eval_resize_size;
  options.set_size(image_size.height, image_size.width);
  if (fixed_eval_size && resized >= std::max(options.height, options.width)) options.eval_resize_size = resized;
  options.exif_orientation = turns_by_exif && dataset != "coco";
  if (dataset == "coco") options.normalization = data::ssd300_input(true).normalization;
  if (trained && !input_preprocessor) copy_evaluation(evaluation_at(trained->input, image_size), options);
  if (ml_perf && dataset != "coco") {
    options.use_boxes = false;
    options.normalization = data::Normalization::minus_mean(data::kImagenetChannelMeans);
  }
  apply_values(*this, options);
  options.crop = crop_of(*this, options.crop);
  options.distortions = distortions.value_or(options.distortions);
  options.random_part = options.distortions;
  options.distort_color_in_yiq = distort_color_in_yiq.value_or(options.distort_color_in_yiq);
  options.fuse_decode_and_crop = fuse_decode_and_crop;
  options.flip = flip;
  options.translate = translate;
  options.cutout = cutout;
  augment(*this, options);
  options.validate();
  return options;
}

void copy_evaluation(const data::TransformOptions& from, data::TransformOptions& to) {
  to.resize_method = from.resize_method;
  to.resize_antialias = from.resize_antialias;
  to.resize_half_pixel_centers = from.resize_half_pixel_centers;
  to.resize_convention = from.resize_convention;
  to.eval_resize_size = from.eval_resize_size;
  to.eval_central_part = from.eval_central_part;
  to.eval_scaled_decode = from.eval_scaled_decode;
  to.exif_orientation = from.exif_orientation;
  to.normalization = from.normalization;
}

data::TransformOptions evaluation_at(data::TransformOptions input, nn::Size2d size) {
  input.set_size(size.height, size.width);
  return input;
}

namespace {

std::string normalization_text(const data::Normalization& normalization) {
  if (normalization == data::Normalization::symmetric()) return "symmetric";
  data::Rgb mean{}, deviation{};
  for (size_t c = 0; c < mean.size(); ++c) {
    deviation[c] = 1 / normalization.scale[c];
    mean[c] = -normalization.shift[c] / normalization.scale[c];
  }
  if (deviation == data::Rgb{1, 1, 1}) return fmt::format("mean ({:.6g})", fmt::join(mean, ", "));
  return fmt::format("mean_std ({:.6g}; {:.6g})", fmt::join(mean, ", "), fmt::join(deviation, ", "));
}

std::string on_or_off(bool on) {
  return on ? "on" : "off";
}

}  // namespace

std::vector<std::string> evaluation_differences(const data::TransformOptions& before,
                                                const data::TransformOptions& now) {
  std::vector<std::string> all;
  const auto compare = [&all](const char* what, const std::string& was, const std::string& is) {
    if (was != is) all.push_back(fmt::format("{} is {} instead of {}", what, is, was));
  };
  compare("image_size", models::image_size_text({before.height, before.width}),
          models::image_size_text({now.height, now.width}));
  compare("resize_method", before.resize_method, now.resize_method);
  compare("resize_antialias", on_or_off(before.resize_antialias), on_or_off(now.resize_antialias));
  compare("resize_half_pixel_centers", on_or_off(before.resize_half_pixel_centers),
          on_or_off(now.resize_half_pixel_centers));
  compare("eval_resize_size", std::to_string(before.eval_resize_size), std::to_string(now.eval_resize_size));
  compare("the central part", fmt::format("{:.4g}", before.eval_central_part),
          fmt::format("{:.4g}", now.eval_central_part));
  compare("the convention of resizing", std::string(data::resize_convention_name(before.resize_convention)),
          std::string(data::resize_convention_name(now.resize_convention)));
  compare("scaled_decode", on_or_off(before.eval_scaled_decode), on_or_off(now.eval_scaled_decode));
  compare("exif_orientation", on_or_off(before.exif_orientation), on_or_off(now.exif_orientation));
  if (before.normalization != now.normalization) {
    compare("normalization", normalization_text(before.normalization), normalization_text(now.normalization));
  }
  return all;
}

void warn_of_differences(const TrainedInput& trained, const data::TransformOptions& now) {
  if (trained.origin.empty()) return;
  const std::vector<std::string> all = evaluation_differences(trained.input, now);
  if (all.empty()) return;
  core::log::warning("the images are made otherwise than {} was trained on: {}", trained.origin, fmt::join(all, ", "));
}

}  // namespace trainyard::frontends
