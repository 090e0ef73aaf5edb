// How a record becomes a model's input: its options (sizes, crops, colours, augmentation, normalization), the interface
// of transforms, and what one draws for a sample. A transform is a pure function of the record and of (seed, epoch,
// sample, position), so the result does not depend on the thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

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

// How shears, translations and rotations sample. kBicubic and kRandom, which draws bilinear or bicubic for each
// operation, are for AutoAugmentPolicy::kTimmRand, which has no kNearest.
enum class AugmentSampling { kNearest, kBilinear, kBicubic, kRandom };

struct AugmentOptions {
  AugmentSampling sampling = AugmentSampling::kNearest;
  // The colour outside of the image. Bilinear samples that reach beyond the edge mix it in by their share.
  std::array<float, 3> fill = {0, 0, 0};
};

// Which operations training images go through: those of torchvision's RandAugment or TrivialAugmentWide, or of timm's
// RandAugment ("rand-m9-mstd0.5-inc1"), whose operations are Pillow's.
enum class AutoAugmentPolicy { kNone, kRand, kTrivial, kTimmRand, kImagenet, kCifar10, kSvhn };

inline constexpr int kMagnitudeBins = 31;  // how many magnitudes an operation of torchvision has
inline constexpr int kMostTimmLevel = 10;  // the greatest magnitude of timm's operations

struct AutoAugmentOptions {
  AutoAugmentPolicy policy = AutoAugmentPolicy::kNone;
  int num_ops = 2;    // for kRand and kTimmRand
  int magnitude = 9;  // for kRand, in [0, kMagnitudeBins), and kTimmRand, in [0, kMostTimmLevel]
  // For kTimmRand. Each operation's magnitude is drawn from a normal distribution of this standard deviation about
  // `magnitude`, and then cut off at 0 and kMostTimmLevel.
  float magnitude_std = 0;
  // For kTimmRand: operations change an image the more the higher the magnitude. Otherwise some change it less.
  bool increasing = false;
  AugmentOptions pixels{};
  void validate() const;  // throws kInvalidArgument
};

// What random erasing writes: zeros, a normal number for each pixel and channel (torchvision's "random", timm's
// "pixel"), or one for each channel (timm's "rand").
enum class ErasedValue { kZero, kPixelNoise, kChannelNoise };

// The defaults are torchvision's. timm's have areas up to 1/3 and aspect ratios up to 1/0.3.
struct RandomErasingOptions {
  float probability = 0;
  float min_area = 0.02F, max_area = 0.33F;                // part of the image
  float min_aspect_ratio = 0.3F, max_aspect_ratio = 3.3F;  // height / width
  ErasedValue value = ErasedValue::kZero;
  void validate() const;  // throws kInvalidArgument
};

// How training images are mirrored left to right.
enum class Flip {
  kNone,
  kRandom,       // half of them, drawn in each epoch
  kAlternating,  // half of the samples, drawn once, in even epochs, and all others in odd ones: Jordan, "94% on
                 // CIFAR-10 in 3.29 seconds on a single GPU", 2024, section 3.6
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
  bool distortions = true;     // colour distortions (ImageNet), pad and crop (CIFAR)
  std::optional<Flip> flip{};  // unset: kRandom; with "cifar10" and "shapes" kNone without distortions
  // With "cifar10" and "shapes": training images are moved by up to so many pixels up or down and left or right, drawn
  // in each epoch, and what comes in from outside is the image reflected at its edge. It takes the place of
  // distortions' padding with zeros. Less than a side of the image. Unset: as distortions say.
  std::optional<int> translate{};
  bool random_part = true;  // with "coco": training takes a random part of an image, mirrored half of the time
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
  RandomErasingOptions random_erasing{};  // applied to training images, after normalization
  // Side in pixels of a square that becomes zeros in each normalized training image, at a place drawn among all that
  // lie inside of it; 0: none. DeVries, Taylor, "Improved regularization of convolutional neural networks with cutout",
  // 2017, with squares that are never cut at the edge.
  int cutout = 0;
  // Changes the size of the images. An eval_resize_size keeps its ratio to their longer side: 256 for 224 becomes 110
  // for 96.
  void set_size(int64_t new_height, int64_t new_width);
  void validate() const;  // throws kInvalidArgument
};

// Mixup and CutMix of the images of a batch, in pairs, as torchvision computes them (mixing.h).
struct MixOptions {
  double mixup_alpha = 0, cutmix_alpha = 0;  // the image's own share is drawn from Beta(alpha, alpha); 0: not used
  double probability = 1;                    // probability that a pair is mixed
  double cutmix_probability = 0.5;           // probability that a mixed pair uses CutMix, when both alphas are given

  bool enabled() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
  void validate() const;  // throws kInvalidArgument
};

// The input of well-known training programs, by name. Each preset is for images of 224 x 224;
// TransformOptions::set_size adapts it to other sizes. The transform "imagenet" accepts all of them, the other
// transforms "default" only. In training, all but the first three decode JPEGs at a smaller size where the window
// allows it.
//
//   default                   tf_cnn_benchmarks
//   official_models_imagenet  tensorflow/models, official/r1/resnet: no colours, 256 -> 224, minus channel means
//   resnet_n                  NVIDIA DALI's TensorFlow ResNet-N example without DALI: pixels stay in [0, 255]
//   dali                      the same example with DALI
//   paddle                    NVIDIA DALI's PaddlePaddle ResNet-50 example
//   tensorpack                Tensorpack's ImageNetModels, without its jitter of brightness, contrast and lighting
//   torchvision               torchvision's reference training of 2017, without colours
using InputPresetRegistry = core::Registry<TransformOptions>;
InputPresetRegistry& input_presets();

// All that a sample's augmentation may depend on.
struct SampleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;          // index in the data set
  int64_t batch_position = 0;  // position in the device's batch; tf_cnn_benchmarks selects some operations by it
};

// The memory format and dtype of the images that a transform writes.
struct ImageForm {
  c10::ScalarType dtype = c10::kFloat;
  c10::Device device = c10::kCPU;
  c10::MemoryFormat layout =
      c10::MemoryFormat::Contiguous;  // layout of an image: [3, height, width] or [height, width, 3]
};

// A tensor that a transform makes of each sample, as well as the image: the target of a detector's boxes.
struct SampleTensor {
  std::string name{};            // in data::Batch::tensors, where it is [N, sizes...]
  std::vector<int64_t> sizes{};  // of one sample; empty: a number
  c10::ScalarType dtype = c10::kFloat;
};

// Turns records into images. Many threads call it at once.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual ImageForm form() const { return {}; }
  // Returns the tensors that batches hold in place of "labels", on the CPU; possibly none. Null: batches hold the
  // samples' labels.
  [[nodiscard]] virtual const std::vector<SampleTensor>* targets() const { return nullptr; }
  // Returns the size of the images that it makes. apply() writes exactly this size, so the pipeline must allocate it.
  [[nodiscard]] virtual ImageSize size() const = 0;
  // Fills `out`, an image of this form. Returns an error that names the record when the image cannot be decoded.
  virtual core::Result<void> apply(const Record& record, const SampleKey& key, void* out) const = 0;
  // Fills `out` as apply() does, and the sample's part of each tensor of targets(), in their order.
  virtual core::Result<void> apply_with_targets(const Record& record, const SampleKey& key, void* out,
                                                const std::vector<void*>& /*targets*/) const {
    return apply(record, key, out);
  }
};

// Transforms by the name of the data set: "imagenet", "cifar10", "shapes".
using TransformFactory = std::function<std::unique_ptr<Transform>(const TransformOptions&)>;
using TransformRegistry = core::Registry<TransformFactory>;
TransformRegistry& transforms();

// The operations on images from which RandAugment and TrivialAugment choose, inversion, and a brightening of timm's.
// Each line says what the magnitude means and then what magnitude 0 does. Of timm's policy the magnitude of a shear is
// in columns a row about the top left corner, that of a translation a part of the side to the left or up, and that of
// colours the factor itself, 1 for unchanged.
enum class AugmentOp {
  kIdentity,      // -
  kShearX,        // columns a row, about the top left corner   unchanged
  kShearY,        // rows a column                              unchanged
  kTranslateX,    // columns to the right, cut to a whole one   unchanged
  kTranslateY,    // rows down                                  unchanged
  kRotate,        // degrees counter-clockwise about the centre unchanged
  kBrightness,    // towards black by -1, away from it above 0  unchanged
  kColor,         // towards gray                               unchanged
  kContrast,      // towards the mean gray                      unchanged
  kSharpness,     // towards a 3 x 3 blur                       unchanged
  kPosterize,     // bits that are kept
  kSolarize,      // values from it on are inverted
  kAutoContrast,  // -: each channel stretched to 0 .. 255
  kEqualize,      // -: each channel's histogram made flat
  kInvert,        // -
  kSolarizeAdd,   // is added to values below 128                 unchanged
};
std::string_view augment_op_name(AugmentOp op);  // torchvision's: "ShearX"

// An operation of AutoAugment's policies and its magnitude.
struct AugmentStep {
  AugmentOp op = AugmentOp::kIdentity;
  double magnitude = 0;
  AugmentSampling sampling = AugmentSampling::kNearest;  // of kTimmRand, as drawn; else AugmentOptions::sampling counts
};

// The random choices of a transform for a sample.
struct TransformDraw {
  // The part of the image that becomes the model's input, after the rotation by EXIF data: in evaluation all of it, or
  // its centre. With "cifar10" and "shapes" it is in pixels of the resized image, and begins outside of the image when
  // the window contains padding: zeros, or with options.translate the image reflected at its edge.
  CropWindow window{};
  bool mirrored = false;                        // mirrored left to right
  std::string resize_method = "bilinear";       // the method at this position of the batch; "crop": nothing is scaled
  std::optional<ColorDraw> colors{};            // nullopt: colours are not changed
  std::vector<AugmentStep> operations{};        // the operations of AutoAugment's policies, in order
  std::optional<CropWindow> erased{};           // the erased window of the model's image
  std::optional<CropWindow> cut_out{};          // the square of options.cutout
  bool operator==(const TransformDraw&) const;  // compares all of them
};

// Returns the random choices of a transform for a sample: for logs, for tests, and to see why an image looks as it
// does. It can be called at any time, before or after training.
//
//   const data::Record record = dataset.read(sample).value();
//   const auto drawn = data::draw_transform("imagenet", options, record, {.seed = 1, .epoch = 3, .sample = sample});
//   drawn.value().window;  // the part of the image that became the model's
//
// Returns what the registered transform called `transform` draws for a sample whose record is `record`: only a window
// when `options` are not for training. Reads the size of the image and decodes nothing. Returns the error of a record
// whose size cannot be read. Throws kNotFound for a transform other than "imagenet", "cifar10" and "shapes", and
// kInvalidArgument for bad options.
core::Result<TransformDraw> draw_transform(const std::string& transform, const TransformOptions& options,
                                           const Record& record, const SampleKey& key);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
