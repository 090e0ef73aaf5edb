// How images become input: the requested options and their flags (image_options.cpp), these as data::TransformOptions
// of a data set, and the input with which a model was trained, because the model must get its images in the same form
// (image_transform.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/graph/ops.h"

namespace trainyard::core {
class FlagTable;
class FlagValues;
}  // namespace trainyard::core

namespace trainyard::frontends {

// How an evaluation makes its images. Unset values are those of the preprocessor, or of the training.
struct EvaluationImageOptions {
  std::optional<std::string> input_preprocessor{};  // a name of data::input_presets()
  std::optional<std::string> resize_method{};       // "bilinear", ...: data::TransformOptions::resize_method
  std::optional<bool> resize_antialias{}, resize_half_pixel_centers{};
  std::optional<int64_t> eval_resize_size{};   // pixels
  std::optional<std::string> normalization{};  // "symmetric", "mean", "mean_std"
  std::optional<data::Rgb> image_mean{}, image_std{};
  std::optional<bool> scaled_decode{};     // for training images, too
  std::optional<bool> exif_orientation{};  // images are rotated as their EXIF data say

  // Throws kInvalidArgument for an option without effect on this data set: images of CIFAR-10, shapes and COCO are
  // always resized in the same way.
  void check(const std::string& dataset) const;
  // Applies the values that are set to `options`, the preprocessor first. Throws kInvalidArgument for a mean or a
  // deviation that would not be used, kNotFound for an unknown preprocessor.
  void apply_to(data::TransformOptions& options) const;
};

// How the images of a model were made in training: from a checkpoint or a file, or from the library that published it.
struct TrainedInput {
  data::TransformOptions input{};  // of evaluation, and its size
  std::string preprocessor{};      // name in data::input_presets() that the training started from; empty: not known
  std::string origin{};            // names the checkpoint or file in messages; empty: differences are not reported
  std::string choice{};            // description when a rule has selected the input; empty: it is from the model
};

struct ImageOptions : EvaluationImageOptions {
  struct Range {
    float low = 0, high = 0;
  };

  // The input of the model that the run evaluates, continues or starts from: the defaults of the options here. Unset:
  // none, and the default preprocessor is "default".
  std::optional<TrainedInput> trained{};
  std::optional<data::CropMethod> random_crop{};
  std::optional<Range> random_crop_area{}, random_crop_aspect_ratio{};
  std::optional<int> random_crop_attempts{};
  std::optional<float> min_object_covered{};  // unset: 0.1
  std::optional<bool> distortions{};
  std::optional<bool> distort_color_in_yiq{};
  std::optional<data::Flip> flip{};  // unset: random; on small images without distortions none
  std::optional<int> translate{};    // pixels; unset: as distortions say
  int cutout = 0;                    // pixels
  bool fuse_decode_and_crop = true;
  bool turns_by_exif =
      false;  // default of exif_orientation when neither it nor the model sets it: true in our own commands
  // true: the preprocessor's eval_resize_size is not scaled with the size of the images, if it is large enough.
  bool fixed_eval_size = false;
  data::AutoAugmentPolicy auto_augment = data::AutoAugmentPolicy::kNone;
  std::optional<int> rand_augment_num_ops{}, rand_augment_magnitude{};  // unset: 2 and 9
  float rand_augment_magnitude_std = 0;
  bool rand_augment_increasing = false;
  std::optional<data::AugmentSampling> auto_augment_sampling{};  // unset: nearest, of timm_rand random
  std::optional<data::Rgb> auto_augment_fill{};  // unset: zeros, of timm_rand the mean of the normalization
  float random_erasing = 0;                      // probability
  // What random erasing writes, and as which library draws the part.
  enum class ErasedPart { kZero, kRandom, kTimmConst, kTimmRand, kTimmPixel };
  ErasedPart random_erasing_value = ErasedPart::kZero;
  bool ml_perf = false;  // MLPerf's input: no bounding boxes, and the mean is subtracted unless normalization is set

  // Returns the name of the resulting preprocessor.
  [[nodiscard]] std::string preprocessor() const;
  // Returns the options of the data set's transform, for images of `image_size`. An eval_resize_size that is not given
  // is the preprocessor's, scaled by the ratio of the size to 224. Throws kInvalidArgument for a value out of range,
  // one that the data set's transform does not use, or two that contradict each other.
  [[nodiscard]] data::TransformOptions transform(const std::string& dataset, nn::Size2d image_size) const;
};

// Declares the flags of training and evaluation. Reading throws kInvalidArgument for a list that does not hold the
// numbers it needs.
void declare_image_flags(core::FlagTable& table);
[[nodiscard]] ImageOptions read_image_options(const core::FlagValues& values);
// Declares the flags of evaluation alone, for a command on a trained model, which provides the defaults.
void declare_trained_image_flags(core::FlagTable& table);
[[nodiscard]] EvaluationImageOptions read_evaluation_options(const core::FlagValues& values);

// Copies the part of `from` that evaluation depends on, all but the size of the images.
void copy_evaluation(const data::TransformOptions& from, data::TransformOptions& to);
// Returns the evaluation of `input` for images of another size: the crop remains the same fraction of the resized
// image.
[[nodiscard]] data::TransformOptions evaluation_at(data::TransformOptions input, nn::Size2d size);
// Returns the differences between the evaluations of `now` and `before`, each as "eval_resize_size is 128 instead of
// 256". Empty when they are the same.
[[nodiscard]] std::vector<std::string> evaluation_differences(const data::TransformOptions& before,
                                                              const data::TransformOptions& now);
// Warns, in one line, of all differences between images made by `now` and those of the training.
void warn_of_differences(const TrainedInput& trained, const data::TransformOptions& now);

}  // namespace trainyard::frontends
