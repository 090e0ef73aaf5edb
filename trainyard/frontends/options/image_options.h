// How images become input: what was asked for, as data::TransformOptions of one data set, and how a model's images were
// made so far, because it must be given its images as it was trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/graph/ops.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// How an evaluation makes its images. A value that is not set leaves what the preprocessor, or the training, has.
struct EvaluationImageOptions {
  std::optional<std::string> input_preprocessor{};  // a name of data::input_presets()
  std::optional<std::string> resize_method{};       // "bilinear", ...: data::TransformOptions::resize_method
  std::optional<bool> resize_antialias{}, resize_half_pixel_centers{};
  std::optional<int64_t> eval_resize_size{};   // pixels
  std::optional<std::string> normalization{};  // "symmetric", "mean", "mean_std"
  std::optional<data::Rgb> image_mean{}, image_std{};
  std::optional<bool> scaled_decode{};     // of training images, too
  std::optional<bool> exif_orientation{};  // images are turned as their EXIF data say

  // Throws kInvalidArgument for an option that changes nothing on this data set: images of CIFAR-10 and shapes have one
  // way of being resized.
  void check(const std::string& dataset) const;
  // Changes `options` to what is set here, the preprocessor first. Throws kInvalidArgument for a mean or a deviation
  // that nothing would use, kNotFound for an unknown preprocessor.
  void apply_to(data::TransformOptions& options) const;
};

// How the images of a model were made so far: what a checkpoint or a file says of it, or the library that made it.
struct TrainedInput {
  data::TransformOptions input{};  // of evaluation, and its size
  std::string preprocessor{};      // the name in data::input_presets() that the training began from; empty: not known
  std::string origin{};            // names the checkpoint or file in messages; empty: nothing is said of differences
  std::string choice{};            // for people, where a rule has chosen the input; empty: the model itself says it
};

struct ImageOptions : EvaluationImageOptions {
  struct Range {
    float low = 0, high = 0;
  };

  // The model that the run evaluates, continues or starts from: it says what the options here do not. Unset: there is
  // none, and the preprocessor is "default" where none is set.
  std::optional<TrainedInput> trained{};
  std::optional<data::CropMethod> random_crop{};
  std::optional<Range> random_crop_area{}, random_crop_aspect_ratio{};
  std::optional<int> random_crop_attempts{};
  std::optional<float> min_object_covered{};  // unset: 0.1
  std::optional<bool> distortions{};
  std::optional<bool> distort_color_in_yiq{};
  bool fuse_decode_and_crop = true;
  bool turns_by_exif = false;  // unless exif_orientation or the model says otherwise: true in our own commands
  // The preprocessor's eval_resize_size stays as it is for images of all sizes that it reaches.
  bool fixed_eval_size = false;
  data::AutoAugmentPolicy auto_augment = data::AutoAugmentPolicy::kNone;
  std::optional<int> rand_augment_num_ops{}, rand_augment_magnitude{};  // unset: 2 and 9
  bool auto_augment_bilinear = false;
  std::optional<data::Rgb> auto_augment_fill{};
  float random_erasing = 0;  // probability
  bool random_erasing_noise = false;
  bool ml_perf = false;  // MLPerf's input: no bounding boxes, and the mean is subtracted unless normalization is set

  // Returns the name of the preprocessor that these options come to.
  [[nodiscard]] std::string preprocessor() const;
  // Returns the options of the data set's transform, for images of `image_size`, in whose ratio to 224 the
  // preprocessor's eval_resize_size is where none is given. Throws kInvalidArgument: a value out
  // of range, one that the data set's transform has no use for, two that contradict each other.
  [[nodiscard]] data::TransformOptions transform(const std::string& dataset, nn::Size2d image_size) const;
};

// Copies the part of `from` that evaluation depends on, all but the size of the images.
void copy_evaluation(const data::TransformOptions& from, data::TransformOptions& to);
// Returns the evaluation of `input` for images of another size: what is cut out stays the same part of what is resized.
[[nodiscard]] data::TransformOptions evaluation_at(data::TransformOptions input, nn::Size2d size);
// Returns how an evaluation by `now` makes other images than by `before`, each as "eval_resize_size is 128 instead of
// 256". Empty: they are the same.
[[nodiscard]] std::vector<std::string> evaluation_differences(const data::TransformOptions& before,
                                                              const data::TransformOptions& now);
// Warns, in one line, of all in which images that are made by `now` differ from those of the training.
void warn_of_differences(const TrainedInput& trained, const data::TransformOptions& now);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
