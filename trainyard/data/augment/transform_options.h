// How images become a model's input: sizes, crops, colours, augmentation and normalization.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/data/image/normalization.h"
#include "trainyard/data/image/resize_convention.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

enum class CropMethod {
  // TensorFlow's sample_distorted_bounding_box: draws the aspect ratio, then the height among those that the area
  // allows, then the position, each uniformly. Draws again while the window covers too little of every box; after
  // max_attempts takes the whole image. Without boxes the image is the box.
  kDistortedBoundingBox,
  // torchvision's RandomResizedCrop: draws the area, the logarithm of the aspect ratio and the position, each
  // uniformly. Draws again while the window is larger than the image; after max_attempts takes the largest centred
  // window within the aspect ratios. Boxes are ignored.
  kResizedCrop,
};

struct CropOptions {
  CropMethod method = CropMethod::kDistortedBoundingBox;
  float min_object_covered = 0.1F;                           // part of at least one box that must be inside
  float min_aspect_ratio = 0.75F, max_aspect_ratio = 1.33F;  // width / height
  float min_area = 0.05F, max_area = 1.0F;                   // part of the image
  int max_attempts = 100;
  void validate() const;  // throws kInvalidArgument
};

struct AugmentOptions {
  bool bilinear = false;  // else nearest: how shears, translations and rotations sample
  // The colour outside of the image. Bilinear samples that reach beyond the edge mix it in by their share.
  std::array<float, 3> fill = {0, 0, 0};
};

// Which operations training images go through: those of RandAugment or of TrivialAugmentWide.
enum class AutoAugmentPolicy { kNone, kRand, kTrivial };

inline constexpr int kMagnitudeBins = 31;  // how many magnitudes an operation has

struct AutoAugmentOptions {
  AutoAugmentPolicy policy = AutoAugmentPolicy::kNone;
  int num_ops = 2;    // for "rand"
  int magnitude = 9;  // for "rand", in [0, kMagnitudeBins)
  AugmentOptions pixels{};
  void validate() const;  // throws kInvalidArgument
};

struct RandomErasingOptions {
  float probability = 0;
  float min_area = 0.02F, max_area = 0.33F;                // part of the image
  float min_aspect_ratio = 0.3F, max_aspect_ratio = 3.3F;  // height / width
  bool noise = false;                                      // normal numbers instead of zeros
  void validate() const;                                   // throws kInvalidArgument
};

struct TransformOptions {
  int64_t height = 224, width = 224;
  bool training = true;
  // nearest, bilinear, bicubic or area; round_robin takes these in turn; crop scales nothing: the centre is cut out, or
  // padded.
  std::string resize_method = "bilinear";
  bool resize_antialias = false, resize_half_pixel_centers = false;  // image/resize.h
  // How evaluation rounds sizes and the position of the central crop, when eval_resize_size is not 0, and how pixels
  // outside of images are filled: the conventions of DALI and OpenCV repeat the edge (image/resize_convention.h).
  ResizeConvention resize_convention = ResizeConvention::kPlain;
  CropOptions crop{};            // for training images
  bool use_boxes = true;         // whether the crop uses the record's bounding boxes
  int64_t eval_resize_size = 0;  // pixels of the shorter side before the central crop; 0: 1.145 times the target
  // Part of both sides, in (0, 1]: evaluation crops this part from the centre of the whole image and scales it to the
  // target whatever its aspect ratio; eval_resize_size must be 0 then. 0: evaluation scales first, to eval_resize_size.
  float eval_central_part = 0;
  bool distortions = true;  // colour distortions (ImageNet), pad and crop (CIFAR)
  bool distort_color_in_yiq = true;
  // true: contrast changes last at even positions of the batch, and before saturation and hue at odd ones. false:
  // always last.
  bool alternate_color_order = true;
  bool fuse_decode_and_crop = true;
  // JPEG windows of twice the target or more are decoded at a smaller size (DecodeOptions::at_least), in training and
  // in evaluation.
  bool scaled_decode = false, eval_scaled_decode = false;
  bool exif_orientation = false;      // images are rotated as their EXIF data say
  AutoAugmentOptions auto_augment{};  // applied to training images at the model's size, after crop, flip and colours
  Normalization normalization{};
  RandomErasingOptions random_erasing{};  // applied to training images, last
  // Changes the size of the images. An eval_resize_size keeps its ratio to their longer side: 256 for 224 becomes 110
  // for 96.
  void set_size(int64_t new_height, int64_t new_width);
  void validate() const;  // throws kInvalidArgument
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
