// From a record to the numbers a model sees. A transform is a pure function of the record and of (seed, epoch, sample,
// position): which thread runs it does not matter.
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

// What a sample's augmentation may depend on.
struct SampleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;          // index in the data set
  int64_t batch_position = 0;  // place in its device's batch, by which tf_cnn_benchmarks chooses some operations
};

struct TransformOptions {
  int64_t height = 224, width = 224;
  bool training = true;
  // nearest, bilinear, bicubic or area; round_robin takes these in turn; crop scales nothing: the centre is cut out, or
  // padded.
  std::string resize_method = "bilinear";
  bool resize_antialias = false, resize_half_pixel_centers = false;  // image/resize.h
  // How sizes and the centre of an evaluation are rounded, where eval_resize_size is not 0; and what is outside of
  // images, of which the conventions of DALI and OpenCV repeat the edge (image/resize_convention.h).
  ResizeConvention resize_convention = ResizeConvention::kPlain;
  CropOptions crop{};            // of training images
  bool use_boxes = true;         // of the record, in sampling the crop; false: as if it had none
  int64_t eval_resize_size = 0;  // pixels of the shorter side before the central crop; 0: 1.145 times the target
  // Part of both sides, in (0, 1]: evaluation cuts the centre of that size out of the whole image and scales it to the
  // target whatever its aspect ratio; eval_resize_size is 0 then. 0: the image is scaled first, as that says.
  float eval_central_part = 0;
  bool distortions = true;  // colour distortions (ImageNet), pad and crop (CIFAR)
  bool distort_color_in_yiq = true;
  // Contrast changes last at even places of the batch, and before saturation and hue at odd ones; false: last always.
  bool alternate_color_order = true;
  bool fuse_decode_and_crop = true;
  // JPEG windows of twice the target or more are decoded at a smaller size (DecodeOptions::at_least), in training and
  // in evaluation.
  bool scaled_decode = false, eval_scaled_decode = false;
  bool exif_orientation = false;      // images are turned as their EXIF data say
  AutoAugmentOptions auto_augment{};  // of training images at the model's size, after crop, flip and colours
  Normalization normalization{};
  RandomErasingOptions random_erasing{};  // of training images, last
  // Changes the size of the images. An eval_resize_size keeps its ratio to their longer side: 256 for 224 becomes 110
  // for 96.
  void set_size(int64_t new_height, int64_t new_width);
  void validate() const;  // throws kInvalidArgument
};

// What a transform fills, and where it lies.
struct ImageForm {
  c10::ScalarType dtype = c10::kFloat;
  c10::Device device = c10::kCPU;
  c10::MemoryFormat layout = c10::MemoryFormat::Contiguous;  // of the batch: [3, height, width] or [height, width, 3]
};

// Turns records into images. Many threads call it at once.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual ImageForm form() const { return {}; }
  // Returns the size of the images that it makes. A pipeline must have room for just that size, or apply() would write
  // into its neighbours.
  [[nodiscard]] virtual ImageSize size() const = 0;
  // Fills `out`, an image of this form. An image that cannot be decoded is an error that says where it is.
  virtual core::Result<void> apply(const Record& record, const SampleKey& key, void* out) const = 0;
};

// Transforms by the name of the data set: "imagenet", "cifar10", "shapes".
using TransformFactory = std::function<std::unique_ptr<Transform>(const TransformOptions&)>;
using TransformRegistry = core::Registry<TransformFactory>;
TransformRegistry& transforms();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
