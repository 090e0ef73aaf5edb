#include "trainyard/recipes/shared/image_options.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/data/augment/input_preset.h"
#include "trainyard/recipes/shared/image_size.h"

namespace trainyard::recipes {
namespace {

const std::string kSavedAs = "data/input/";
constexpr std::array<const char*, 3> kChannelNames = {"red", "green", "blue"};
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

void augment(const ImageOptions& asked, data::TransformOptions& options) {
  data::AutoAugmentOptions& augment = options.auto_augment;
  augment.policy = asked.auto_augment;
  augment.num_ops = asked.rand_augment_num_ops.value_or(kDefaultOps);
  augment.magnitude = asked.rand_augment_magnitude.value_or(kDefaultMagnitude);
  augment.pixels.bilinear = asked.auto_augment_bilinear;
  augment.pixels.fill = asked.auto_augment_fill.value_or(augment.pixels.fill);
  options.random_erasing.probability = asked.random_erasing;
  options.random_erasing.noise = asked.random_erasing_noise;
  const auto require = [](bool used, bool changed, const char* flag, const char* needed) {
    if (changed && !used) refuse(fmt::format("--{} has no use", flag), needed, "not given");
  };
  const bool rand = augment.policy == data::AutoAugmentPolicy::kRand;
  const bool any = augment.policy != data::AutoAugmentPolicy::kNone;
  require(rand, augment.num_ops != kDefaultOps, "rand_augment_num_ops", "--auto_augment=rand");
  require(rand, augment.magnitude != kDefaultMagnitude, "rand_augment_magnitude", "--auto_augment=rand");
  require(any, asked.auto_augment_bilinear, "auto_augment_interpolation", "--auto_augment=rand or trivial");
  require(any, asked.auto_augment_fill.has_value(), "auto_augment_fill", "--auto_augment=rand or trivial");
  require(asked.random_erasing > 0, asked.random_erasing_noise, "random_erasing_value", "--random_erasing above 0");
}

// Images of CIFAR and shapes are resized in one way only, and their windows have one size.
bool has_small_images(const std::string& dataset) {
  return dataset == "cifar10" || dataset == "shapes";
}

void refuse_for_small_images(std::initializer_list<std::pair<const char*, bool>> changed, const std::string& dataset) {
  for (const auto& [flag, is_changed] : changed) {
    if (!is_changed) continue;
    refuse(fmt::format("--{} has no use for data set {}", flag, dataset), "a data set of images of any size",
           "images of a fixed size");
  }
}

void check_crops(const ImageOptions& asked, const std::string& dataset) {
  if (!has_small_images(dataset)) return;
  refuse_for_small_images(
      {{"input_preprocessor", asked.input_preprocessor != "default"},
       {"random_crop", asked.random_crop.value_or(kDefaultCrop) != kDefaultCrop},
       {"random_crop_area", asked.random_crop_area.has_value()},
       {"random_crop_aspect_ratio", asked.random_crop_aspect_ratio.has_value()},
       {"random_crop_attempts", asked.random_crop_attempts.value_or(kDefaultAttempts) != kDefaultAttempts},
       {"min_object_covered", asked.min_object_covered.value_or(kDefaultCovered) != kDefaultCovered}},
      dataset);
}

}  // namespace

void EvaluationImageOptions::check(const std::string& dataset) const {
  if (!has_small_images(dataset)) return;
  refuse_for_small_images({{"resize_method", resize_method.value_or(kDefaultResize) != kDefaultResize},
                           {"eval_resize_size", eval_resize_size.value_or(0) != 0},
                           {"resize_antialias", resize_antialias.value_or(false)},
                           {"resize_half_pixel_centers", resize_half_pixel_centers.value_or(false)}},
                          dataset);
}

void EvaluationImageOptions::apply_to(data::TransformOptions& options) const {
  options.resize_method = resize_method.value_or(options.resize_method);
  options.resize_antialias = resize_antialias.value_or(options.resize_antialias);
  options.resize_half_pixel_centers = resize_half_pixel_centers.value_or(options.resize_half_pixel_centers);
  options.eval_resize_size = eval_resize_size.value_or(options.eval_resize_size);
  if (eval_resize_size) options.eval_central_part = 0;
  options.exif_orientation = exif_orientation.value_or(options.exif_orientation);
  const std::string kind = normalization.value_or("");
  if (image_mean && kind != "mean" && kind != "mean_std") {
    refuse("--image_mean has no use", "--normalization=mean or mean_std beside it", "'" + kind + "'");
  }
  if (image_std && kind != "mean_std") {
    refuse("--image_std has no use", "--normalization=mean_std beside it", "'" + kind + "'");
  }
  if (kind == "symmetric") options.normalization = data::Normalization::symmetric();
  if (kind == "mean") {
    options.normalization = data::Normalization::minus_mean(image_mean.value_or(data::kImagenetChannelMeans));
  }
  if (kind == "mean_std") {
    options.normalization = data::Normalization::standardized(image_mean.value_or(data::kImagenetMean),
                                                              image_std.value_or(data::kImagenetStandardDeviation));
  }
}

data::TransformOptions ImageOptions::transform(const std::string& dataset, nn::Size2d image_size) const {
  check(dataset);
  check_crops(*this, dataset);
  data::TransformOptions options = data::input_presets().get(input_preprocessor);
  const int64_t resized = options.eval_resize_size;
  options.set_size(image_size.height, image_size.width);
  if (fixed_eval_size && resized >= std::max(options.height, options.width)) options.eval_resize_size = resized;
  options.exif_orientation = turns_by_exif;
  if (ml_perf) {
    options.use_boxes = false;
    options.normalization = data::Normalization::minus_mean(data::kImagenetChannelMeans);
  }
  apply_to(options);
  options.crop = crop_of(*this, options.crop);
  options.distortions = distortions.value_or(options.distortions);
  options.distort_color_in_yiq = distort_color_in_yiq.value_or(options.distort_color_in_yiq);
  options.fuse_decode_and_crop = fuse_decode_and_crop;
  options.scaled_decode = scaled_decode.value_or(options.scaled_decode);
  options.eval_scaled_decode = scaled_decode.value_or(false);
  augment(*this, options);
  options.validate();
  return options;
}

void save_evaluation_options(const data::TransformOptions& options, core::StateWriter& writer) {
  save_image_size({options.height, options.width}, writer);
  core::ScopedWriter input(writer, kSavedAs);
  input.text("resize_method", options.resize_method);
  input.integer("resize_antialias", options.resize_antialias ? 1 : 0);
  input.integer("resize_half_pixel_centers", options.resize_half_pixel_centers ? 1 : 0);
  input.integer("eval_resize_size", options.eval_resize_size);
  if (options.eval_central_part > 0) input.real("eval_central_part", options.eval_central_part);
  if (options.resize_convention != data::ResizeConvention::kPlain) {
    input.text("resize_convention", data::resize_convention_name(options.resize_convention));
  }
  if (options.eval_scaled_decode) input.integer("scaled_decode", 1);
  if (options.exif_orientation) input.integer("exif_orientation", 1);
  for (size_t c = 0; c < kChannelNames.size(); ++c) {
    input.real(fmt::format("scale/{}", kChannelNames[c]), options.normalization.scale[c]);
    input.real(fmt::format("shift/{}", kChannelNames[c]), options.normalization.shift[c]);
  }
}

bool same_evaluation(const data::TransformOptions& a, const data::TransformOptions& b) {
  return a.resize_method == b.resize_method && a.resize_antialias == b.resize_antialias &&
         a.resize_half_pixel_centers == b.resize_half_pixel_centers && a.eval_resize_size == b.eval_resize_size &&
         a.eval_central_part == b.eval_central_part && a.resize_convention == b.resize_convention &&
         a.eval_scaled_decode == b.eval_scaled_decode && a.exif_orientation == b.exif_orientation &&
         a.normalization == b.normalization;
}

void load_evaluation_options(const core::StateReader& reader, data::TransformOptions& options) {
  const core::ScopedReader input(reader, kSavedAs);
  if (!input.has("resize_method")) return;
  options.resize_method = input.text("resize_method");
  options.resize_antialias = input.integer("resize_antialias") != 0;
  options.resize_half_pixel_centers = input.integer("resize_half_pixel_centers") != 0;
  options.eval_resize_size = input.integer("eval_resize_size");
  options.eval_central_part =
      input.has("eval_central_part") ? static_cast<float>(input.real("eval_central_part")) : 0.0F;
  // Earlier releases had one convention and saved none of these.
  options.resize_convention = input.has("resize_convention") ? data::resize_convention(input.text("resize_convention"))
                                                             : data::ResizeConvention::kPlain;
  options.eval_scaled_decode = input.has("scaled_decode") && input.integer("scaled_decode") != 0;
  options.exif_orientation = input.has("exif_orientation") && input.integer("exif_orientation") != 0;
  for (size_t c = 0; c < kChannelNames.size(); ++c) {
    options.normalization.scale[c] = static_cast<float>(input.real(fmt::format("scale/{}", kChannelNames[c])));
    options.normalization.shift[c] = static_cast<float>(input.real(fmt::format("shift/{}", kChannelNames[c])));
  }
}

}  // namespace trainyard::recipes
