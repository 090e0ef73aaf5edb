#include "trainyard/frontends/options/image_flags.h"

#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/options/number_list.h"

namespace trainyard::frontends {
namespace {

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
