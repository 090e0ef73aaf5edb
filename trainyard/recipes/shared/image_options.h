// How images become input: what was asked for, as data::TransformOptions of one data set, and what of these a
// checkpoint remembers, because a model must be given its images as it was trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/graph/ops.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// How an evaluation makes its images. A value that is not set leaves what the preprocessor, or the training, has.
struct EvaluationImageOptions {
  std::optional<std::string> resize_method{};  // "bilinear", ...: data::TransformOptions::resize_method
  std::optional<bool> resize_antialias{}, resize_half_pixel_centers{};
  std::optional<int64_t> eval_resize_size{};   // pixels
  std::optional<bool> exif_orientation{};      // images are turned as their EXIF data say
  std::optional<std::string> normalization{};  // "symmetric", "mean", "mean_std"
  std::optional<data::Rgb> image_mean{}, image_std{};

  // Throws kInvalidArgument for an option that changes nothing on this data set: images of CIFAR-10 and shapes have one
  // way of being resized.
  void check(const std::string& dataset) const;
  // Changes `options` to what is set here. Throws kInvalidArgument for a mean or a deviation that nothing would use.
  void apply_to(data::TransformOptions& options) const;
};

struct ImageOptions : EvaluationImageOptions {
  struct Range {
    float low = 0, high = 0;
  };

  std::string input_preprocessor = "default";  // a name of data::input_presets()
  std::optional<data::CropMethod> random_crop{};
  std::optional<Range> random_crop_area{}, random_crop_aspect_ratio{};
  std::optional<int> random_crop_attempts{};
  std::optional<float> min_object_covered{};  // unset: 0.1
  std::optional<bool> distortions{};
  std::optional<bool> distort_color_in_yiq{};
  bool fuse_decode_and_crop = true;
  std::optional<bool> scaled_decode{};
  bool turns_by_exif = false;  // unless exif_orientation says otherwise: true in our own commands
  // The preprocessor's eval_resize_size stays as it is for images of all sizes that it reaches.
  bool fixed_eval_size = false;
  data::AutoAugmentPolicy auto_augment = data::AutoAugmentPolicy::kNone;
  std::optional<int> rand_augment_num_ops{}, rand_augment_magnitude{};  // unset: 2 and 9
  bool auto_augment_bilinear = false;
  std::optional<data::Rgb> auto_augment_fill{};
  float random_erasing = 0;  // probability
  bool random_erasing_noise = false;
  bool ml_perf = false;  // MLPerf's input: no bounding boxes, and the mean is subtracted unless normalization is set

  // Returns the options of the data set's transform, for images of `image_size`, in whose ratio to 224 the
  // preprocessor's eval_resize_size is where none is given. Throws kInvalidArgument: a value out
  // of range, one that the data set's transform has no use for, two that contradict each other.
  [[nodiscard]] data::TransformOptions transform(const std::string& dataset, nn::Size2d image_size) const;
};

// Saves the part of `options` that evaluation depends on, the size of the images (image_size.h) included.
void save_evaluation_options(const data::TransformOptions& options, core::StateWriter& writer);
bool same_evaluation(const data::TransformOptions& a, const data::TransformOptions& b);
// Leaves the size of the images as it is, and all of `options` where an old checkpoint has none.
void load_evaluation_options(const core::StateReader& reader, data::TransformOptions& options);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
