// Turns a record into a model's input. A transform is a pure function of the record and of (seed, epoch, sample,
// position), so the result does not depend on the thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/data/augment/auto_augment.h"
#include "trainyard/data/augment/crop.h"
#include "trainyard/data/augment/random_erasing.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/normalization.h"
#include "trainyard/data/image/resize_convention.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// All that a sample's augmentation may depend on.
struct SampleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;          // index in the data set
  int64_t batch_position = 0;  // position in the device's batch; tf_cnn_benchmarks selects some operations by it
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

// The memory format and dtype of the images that a transform writes.
struct ImageForm {
  c10::ScalarType dtype = c10::kFloat;
  c10::Device device = c10::kCPU;
  c10::MemoryFormat layout =
      c10::MemoryFormat::Contiguous;  // layout of an image: [3, height, width] or [height, width, 3]
};

// Turns records into images. Many threads call it at once.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual ImageForm form() const { return {}; }
  // Returns the size of the images that it makes. apply() writes exactly this size, so the pipeline must allocate it.
  [[nodiscard]] virtual ImageSize size() const = 0;
  // Fills `out`, an image of this form. Returns an error that names the record when the image cannot be decoded.
  virtual core::Result<void> apply(const Record& record, const SampleKey& key, void* out) const = 0;
};

// Transforms by the name of the data set: "imagenet", "cifar10", "shapes".
using TransformFactory = std::function<std::unique_ptr<Transform>(const TransformOptions&)>;
using TransformRegistry = core::Registry<TransformFactory>;
TransformRegistry& transforms();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
