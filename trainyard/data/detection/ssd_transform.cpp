#include "trainyard/data/detection/ssd_transform.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "trainyard/core/random/random.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/data/detection/ssd_crop.h"
#include "trainyard/data/image/color.h"
#include "trainyard/data/image/resize.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr float kBrightness = 0.125F, kContrast = 0.5F, kSaturation = 0.5F, kHue = 0.05F;
enum TargetPlace : size_t { kBoxes, kClasses, kMatched };

// The pixels of a part of an image, which begins at place * (side - 1) as in the original.
CropWindow window_of(const Box& part, ImageSize image) {
  const auto height = static_cast<float>(image.height), width = static_cast<float>(image.width);
  return {.y = static_cast<int>(part.ymin * (height - 1)),
          .x = static_cast<int>(part.xmin * (width - 1)),
          .height = std::max(static_cast<int>((part.ymax - part.ymin) * height), 1),
          .width = std::max(static_cast<int>((part.xmax - part.xmin) * width), 1)};
}

void mirror(std::vector<Box>& boxes) {
  for (Box& box : boxes) {
    const float xmin = box.xmin;
    box.xmin = 1 - box.xmax;
    box.xmax = 1 - xmin;
  }
}

ColorDraw draw_jitter(core::RandomStream& random) {
  ColorDraw draw;
  draw.brightness = random.uniform(-kBrightness, kBrightness);
  draw.contrast = random.uniform(1 - kContrast, 1 + kContrast);
  draw.saturation = random.uniform(1 - kSaturation, 1 + kSaturation);
  draw.hue = random.uniform(-kHue, kHue);
  return draw;
}

// `planes` have values in [0, 1], which may leave it.
void apply_jitter(ColorPlanes planes, const ColorDraw& draw) {
  adjust_brightness(planes, draw.brightness);
  adjust_contrast(planes, draw.contrast);
  adjust_saturation(planes, draw.saturation);
  adjust_hue(planes, draw.hue);
}

SsdDraw draw_training(const TransformOptions& options, ImageSize image, const Record& record, const SampleKey& key) {
  core::RandomStream random(key.seed, "ssd", {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)});
  SsdDraw draw{.window = {0, 0, image.height, image.width}, .boxes = record.boxes, .labels = record.box_labels};
  if (options.random_part) {
    const SsdCrop crop = draw_ssd_crop(record.boxes, random);
    draw = {.window = window_of(crop.part, image), .boxes = crop_boxes(record.boxes, crop)};
    for (const size_t number : crop.kept) draw.labels.push_back(record.box_labels[number]);
    draw.mirrored = random.uniform() > 0.5F;
    if (draw.mirrored) mirror(draw.boxes);
  }
  if (options.distortions) draw.colors = draw_jitter(random);
  return draw;
}

void refuse(bool used, const char* option) {
  if (!used) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("{} cannot be used for images with boxes", option), .remedy = "leave it out"});
}

class SsdTransform : public Transform {
 public:
  explicit SsdTransform(const TransformOptions& options)
      : options_(options), size_{static_cast<int>(options.height), static_cast<int>(options.width)} {
    options_.validate();
    refuse(options.auto_augment.policy != AutoAugmentPolicy::kNone, "an AutoAugment policy");
    refuse(options.random_erasing.probability > 0, "random erasing");
    refuse(options.flip.has_value(), "a choice of flips");
    refuse(options.translate.has_value(), "translation");
    refuse(options.cutout > 0, "cutout");
    refuse(options.resize_method == "crop" || options.resize_method == "round_robin", "this resize method");
    resize_ = {.method = resize_method(options.resize_method),
               .antialias = options.resize_antialias,
               .half_pixel_centers = options.resize_half_pixel_centers};
    unit_normalization_ = options_.normalization;
    for (float& scale : unit_normalization_.scale) scale *= 255;
    if (!options_.training) return;
    const int64_t boxes = DefaultBoxes::ssd300().size();
    targets_ = {{"boxes", {boxes, 4}, c10::kFloat}, {"classes", {boxes}, c10::kLong}, {"num_matched", {}, c10::kLong}};
  }

  ImageSize size() const override { return size_; }
  const std::vector<SampleTensor>* targets() const override { return &targets_; }

  core::Result<void> apply(const Record& record, const SampleKey& key, void* image) const override {
    return make(record, key, static_cast<float*>(image), nullptr);
  }

  core::Result<void> apply_with_targets(const Record& record, const SampleKey& key, void* image,
                                        const std::vector<void*>& targets) const override {
    return make(record, key, static_cast<float*>(image), options_.training ? &targets : nullptr);
  }

 private:
  core::Result<void> make(const Record& record, const SampleKey& key, float* out,
                          const std::vector<void*>* targets) const {
    core::Result<SsdDraw> drawn = draw_ssd(options_, record, key);
    if (!drawn.ok()) return drawn.error();
    const SsdDraw& draw = drawn.value();
    auto image = part(record, draw.window);
    if (!image.ok()) return image.error();
    paint(image.value().pixels, draw, out);
    if (targets == nullptr) return {};
    *static_cast<int64_t*>((*targets)[kMatched]) = DefaultBoxes::ssd300().encode(
        draw.boxes, draw.labels, static_cast<float*>((*targets)[kBoxes]), static_cast<int64_t*>((*targets)[kClasses]));
    return {};
  }

  core::Result<RecordImage> part(const Record& record, const CropWindow& window) const {
    const bool scaled = options_.training ? options_.scaled_decode : options_.eval_scaled_decode;
    const DecodeOptions decode{.at_least = scaled ? size_ : ImageSize{}};
    if (!options_.training) return record_image(record, {}, decode);
    if (options_.fuse_decode_and_crop) return record_image(record, window, decode);
    auto image = record_image(record);
    if (!image.ok()) return image;
    return RecordImage{image.value().owner, image.value().pixels.part(window)};
  }

  void paint(const ImageView& image, const SsdDraw& draw, float* out) const {
    const int64_t pixels = options_.height * options_.width;
    const bool jitter = options_.training && options_.distortions;
    ResizeOptions options = resize_;
    options.scale = jitter ? Rgb{1 / 255.0F, 1 / 255.0F, 1 / 255.0F} : options_.normalization.scale;
    options.shift = jitter ? Rgb{} : options_.normalization.shift;
    resize(image, size_, {0, 0, size_.height, size_.width}, options, out);
    // The original scales first. TensorFlow 1's sampling places are not symmetric, so the order matters.
    if (draw.mirrored) {
      for (int64_t row = 0; row < 3 * options_.height; ++row) {
        std::reverse(out + row * options_.width, out + (row + 1) * options_.width);
      }
    }
    if (!jitter) return;
    apply_jitter(ColorPlanes::of(out, pixels), draw.colors);
    unit_normalization_.apply(out, pixels);
  }

  const TransformOptions options_;
  const ImageSize size_;
  ResizeOptions resize_;
  Normalization unit_normalization_;  // of values in [0, 1]
  std::vector<SampleTensor> targets_;
};

const core::Registration<TransformFactory> kCocoTransform(transforms(), "coco", [](const TransformOptions& options) {
  return std::make_unique<SsdTransform>(options);
});

}  // namespace

TransformOptions ssd300_input(bool training) {
  TransformOptions options;
  options.set_size(300, 300);
  options.training = training;
  options.normalization = Normalization::standardized(kImagenetMean, kImagenetStandardDeviation);
  return options;
}

bool SsdDraw::operator==(const SsdDraw& other) const {
  const auto same = [](const Box& a, const Box& b) {
    return a.ymin == b.ymin && a.xmin == b.xmin && a.ymax == b.ymax && a.xmax == b.xmax;
  };
  return window == other.window && mirrored == other.mirrored && colors == other.colors && labels == other.labels &&
         std::equal(boxes.begin(), boxes.end(), other.boxes.begin(), other.boxes.end(), same);
}

core::Result<SsdDraw> draw_ssd(const TransformOptions& options, const Record& record, const SampleKey& key) {
  if (record.boxes.size() != record.box_labels.size()) {
    return Error(ErrorCode::kCorruptData, {.problem = "the record's boxes have no labels",
                                           .where = record.where,
                                           .expected = fmt::format("{} labels", record.boxes.size()),
                                           .actual = fmt::format("{}", record.box_labels.size()),
                                           .remedy = "use the data set coco"});
  }
  core::Result<ImageSize> size = record_image_size(record);
  if (!size.ok()) return size.error();
  const ImageSize image = size.value();
  if (options.training) return draw_training(options, image, record, key);
  return SsdDraw{.window = {0, 0, image.height, image.width}, .boxes = record.boxes, .labels = record.box_labels};
}

}  // namespace trainyard::data
