#include "trainyard/recipes/image_options.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/data/augment/input_preset.h"
#include "trainyard/recipes/number_list.h"

namespace trainyard::recipes {
namespace {

const std::string kSavedAs = "data/input/";
constexpr std::array<const char*, 3> kChannels = {"red", "green", "blue"};

[[noreturn]] void refuse(const std::string& problem, const std::string& expected, const std::string& actual) {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .expected = expected, .actual = actual});
}

std::vector<double> read_list(const core::FlagValues& values, const std::string& flag, size_t count) {
  std::vector<double> numbers = read_numbers<double>(values, flag, core::FlagKind::kReal, "floats");
  if (numbers.size() != count) {
    refuse(fmt::format("--{} has the wrong number of values", flag), std::to_string(count),
           std::to_string(numbers.size()));
  }
  return numbers;
}

void read_range(const core::FlagValues& values, const std::string& flag, float& low, float& high) {
  if (!values.given(flag)) return;
  const std::vector<double> numbers = read_list(values, flag, 2);
  low = static_cast<float>(numbers[0]);
  high = static_cast<float>(numbers[1]);
}

data::Rgb read_rgb(const core::FlagValues& values, const std::string& flag, const data::Rgb& otherwise) {
  if (!values.given(flag)) return otherwise;
  const std::vector<double> numbers = read_list(values, flag, 3);
  return {static_cast<float>(numbers[0]), static_cast<float>(numbers[1]), static_cast<float>(numbers[2])};
}

void read_normalization(const core::FlagValues& values, data::Normalization& normalization) {
  const std::string kind = values.given("normalization") ? values.text("normalization") : "";
  if (values.given("image_mean") && kind != "mean" && kind != "mean_std") {
    refuse("--image_mean has no use", "--normalization=mean or mean_std beside it", "'" + kind + "'");
  }
  if (values.given("image_std") && kind != "mean_std") {
    refuse("--image_std has no use", "--normalization=mean_std beside it", "'" + kind + "'");
  }
  if (kind == "symmetric") normalization = data::Normalization::symmetric();
  if (kind == "mean") {
    normalization = data::Normalization::minus_mean(read_rgb(values, "image_mean", data::kImagenetChannelMeans));
  }
  if (kind == "mean_std") {
    normalization = data::Normalization::standardized(read_rgb(values, "image_mean", data::kImagenetMean),
                                                      read_rgb(values, "image_std", data::kImagenetStandardDeviation));
  }
}

void read_crop(const core::FlagValues& values, data::CropOptions& crop) {
  if (values.given("random_crop")) {
    crop.method = values.text("random_crop") == "resized_crop" ? data::CropMethod::kResizedCrop
                                                               : data::CropMethod::kDistortedBoundingBox;
  }
  read_range(values, "random_crop_area", crop.min_area, crop.max_area);
  read_range(values, "random_crop_aspect_ratio", crop.min_aspect_ratio, crop.max_aspect_ratio);
  if (values.given("random_crop_attempts")) {
    crop.max_attempts = static_cast<int>(values.integer("random_crop_attempts"));
  }
  if (values.given("min_object_covered") && crop.method != data::CropMethod::kDistortedBoundingBox) {
    refuse("--min_object_covered has no use", "--random_crop=distorted_bounding_box", "resized_crop");
  }
  crop.min_object_covered = static_cast<float>(values.real("min_object_covered"));
}

void read_augmentation(const core::FlagValues& values, data::TransformOptions& options) {
  data::AutoAugmentOptions& augment = options.auto_augment;
  augment.policy = data::auto_augment_policy(values.text("auto_augment"));
  augment.num_ops = static_cast<int>(values.integer("rand_augment_num_ops"));
  augment.magnitude = static_cast<int>(values.integer("rand_augment_magnitude"));
  augment.pixels.bilinear = values.text("auto_augment_interpolation") == "bilinear";
  augment.pixels.fill = read_rgb(values, "auto_augment_fill", augment.pixels.fill);
  options.random_erasing.probability = static_cast<float>(values.real("random_erasing"));
  options.random_erasing.noise = values.text("random_erasing_value") == "random";
  for (const auto& [flag, needed] : {std::pair{"rand_augment_num_ops", "--auto_augment=rand"},
                                     std::pair{"rand_augment_magnitude", "--auto_augment=rand"},
                                     std::pair{"auto_augment_interpolation", "--auto_augment=rand or trivial"},
                                     std::pair{"auto_augment_fill", "--auto_augment=rand or trivial"},
                                     std::pair{"random_erasing_value", "--random_erasing above 0"}}) {
    const bool rand = std::string_view(flag).starts_with("rand_augment");
    const bool erasing = std::string_view(flag).starts_with("random_erasing");
    const bool used = erasing ? options.random_erasing.probability > 0
                              : (rand ? augment.policy == data::AutoAugmentPolicy::kRand
                                      : augment.policy != data::AutoAugmentPolicy::kNone);
    if (values.changed(flag) && !used) refuse(fmt::format("--{} has no use", flag), needed, "not given");
  }
}

// Images of CIFAR and shapes are not resized, and their windows have one size.
void check_small_images(const core::FlagValues& values, const std::string& dataset) {
  for (const char* flag :
       {"input_preprocessor", "random_crop", "random_crop_area", "random_crop_aspect_ratio", "random_crop_attempts",
        "min_object_covered", "eval_resize_size", "resize_antialias", "resize_half_pixel_centers"}) {
    if (!values.changed(flag)) continue;
    refuse(fmt::format("--{} has no use for data set {}", flag, dataset), "a data set of images of any size",
           "images of a fixed size");
  }
}

}  // namespace

data::TransformOptions read_image_options(const core::FlagValues& values, const std::string& dataset,
                                          int64_t image_size) {
  if (dataset == "cifar10" || dataset == "shapes") check_small_images(values, dataset);
  const std::string preset = values.text("input_preprocessor");
  data::TransformOptions options = data::input_presets().get(preset);
  options.height = options.width = image_size;
  if (values.boolean("ml_perf")) {
    options.use_boxes = false;
    options.normalization = data::Normalization::minus_mean(data::kImagenetChannelMeans);
  }
  read_evaluation_options(values, options);
  read_crop(values, options.crop);
  if (values.given("distortions")) options.distortions = values.boolean("distortions");
  options.distort_color_in_yiq = values.boolean("distort_color_in_yiq");
  options.fuse_decode_and_crop = values.boolean("fuse_decode_and_crop");
  if (values.given("scaled_decode")) options.scaled_decode = values.boolean("scaled_decode");
  options.exif_orientation = values.boolean("exif_orientation");
  read_augmentation(values, options);
  options.validate();
  return options;
}

void read_evaluation_options(const core::FlagValues& values, data::TransformOptions& options) {
  if (values.given("resize_method")) options.resize_method = values.text("resize_method");
  if (values.given("resize_antialias")) options.resize_antialias = values.boolean("resize_antialias");
  if (values.given("resize_half_pixel_centers")) {
    options.resize_half_pixel_centers = values.boolean("resize_half_pixel_centers");
  }
  if (values.given("eval_resize_size")) options.eval_resize_size = values.integer("eval_resize_size");
  read_normalization(values, options.normalization);
}

void save_evaluation_options(const data::TransformOptions& options, core::StateWriter& writer) {
  core::ScopedWriter input(writer, kSavedAs);
  input.text("resize_method", options.resize_method);
  input.integer("resize_antialias", options.resize_antialias ? 1 : 0);
  input.integer("resize_half_pixel_centers", options.resize_half_pixel_centers ? 1 : 0);
  input.integer("eval_resize_size", options.eval_resize_size);
  for (size_t c = 0; c < kChannels.size(); ++c) {
    input.real(fmt::format("scale/{}", kChannels[c]), options.normalization.scale[c]);
    input.real(fmt::format("shift/{}", kChannels[c]), options.normalization.shift[c]);
  }
}

bool same_evaluation(const data::TransformOptions& a, const data::TransformOptions& b) {
  return a.resize_method == b.resize_method && a.resize_antialias == b.resize_antialias &&
         a.resize_half_pixel_centers == b.resize_half_pixel_centers && a.eval_resize_size == b.eval_resize_size &&
         a.normalization == b.normalization;
}

void load_evaluation_options(const core::StateReader& reader, data::TransformOptions& options) {
  const core::ScopedReader input(reader, kSavedAs);
  if (!input.has("resize_method")) return;
  options.resize_method = input.text("resize_method");
  options.resize_antialias = input.integer("resize_antialias") != 0;
  options.resize_half_pixel_centers = input.integer("resize_half_pixel_centers") != 0;
  options.eval_resize_size = input.integer("eval_resize_size");
  for (size_t c = 0; c < kChannels.size(); ++c) {
    options.normalization.scale[c] = static_cast<float>(input.real(fmt::format("scale/{}", kChannels[c])));
    options.normalization.shift[c] = static_cast<float>(input.real(fmt::format("shift/{}", kChannels[c])));
  }
}

}  // namespace trainyard::recipes
