#include "trainyard/data/augment/imagenet_sampling.h"

#include <algorithm>
#include <cmath>

#include "trainyard/data/augment/augmentation.h"
#include "trainyard/data/augment/crop.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/resize_convention.h"

namespace trainyard::data {
namespace {

// 64 bits: an image of one row of millions of pixels is scaled to more columns than an int can count.
constexpr float kMaxScaledSide = 1 << 30;

}  // namespace

ImagenetSampling::ImagenetSampling(const TransformOptions& options)
    : options_(options), target_{static_cast<int>(options.height), static_cast<int>(options.width)} {
  options_.validate();
}

core::RandomStream ImagenetSampling::stream(const SampleKey& key) {
  return {key.seed, "augment", {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)}};
}

bool ImagenetSampling::normalizes_as_it_resizes() const {
  const bool changes_pixels = options_.distortions || options_.auto_augment.policy != AutoAugmentPolicy::kNone;
  return scales() && !(options_.training && changes_pixels);
}

ColorDistortion ImagenetSampling::color_distortion(int64_t batch_position) const {
  return {.in_yiq = options_.distort_color_in_yiq,
          .contrast_last = batch_position % 2 == 0 || !options_.alternate_color_order};
}

ResizeOptions ImagenetSampling::resize_options(int64_t batch_position, bool mirror) const {
  ResizeOptions result{.antialias = options_.resize_antialias,
                       .half_pixel_centers = options_.resize_half_pixel_centers,
                       .mirror = mirror};
  if (options_.resize_method == "round_robin") {
    result.method = static_cast<ResizeMethod>(batch_position % 4);  // the enum has tf_cnn_benchmarks' order
  } else if (scales()) {
    result.method = resize_method(options_.resize_method);
  }
  const ResizeConvention convention = options_.resize_convention;
  result.repeat_edges = convention == ResizeConvention::kDali || convention == ResizeConvention::kOpencv;
  result.clip = convention == ResizeConvention::kTorchvision || convention == ResizeConvention::kOpencv;
  if (normalizes_as_it_resizes()) {
    result.scale = options_.normalization.scale;
    result.shift = options_.normalization.shift;
  }
  return result;
}

ImageSampling ImagenetSampling::training(ImageSize image, const Record& record, const SampleKey& key,
                                         core::RandomStream& random) const {
  const std::vector<Box> boxes =
      options_.use_boxes ? record_boxes(record, options_.exif_orientation) : std::vector<Box>{};
  const CropWindow crop = sample_crop(image, boxes, options_.crop, random);
  const bool mirror = draw_flip(options_, key, Flip::kRandom, random);
  return {.part = crop,
          .size = target_,
          .window = {0, 0, target_.height, target_.width},
          .resize = resize_options(key.batch_position, mirror)};
}

ImageSampling ImagenetSampling::evaluation(ImageSize image, const SampleKey& key) const {
  if (options_.eval_central_part > 0) {
    const CropWindow centre{central_margin(image.height), central_margin(image.width),
                            image.height - 2 * central_margin(image.height),
                            image.width - 2 * central_margin(image.width)};
    return {.part = centre,
            .size = target_,
            .window = {0, 0, target_.height, target_.width},
            .resize = resize_options(key.batch_position, false)};
  }
  const ScaledSize scaled = evaluation_size(image);
  const auto start = [this](int side, int target) { return centre_start(side - target, options_.resize_convention); };
  ImageSampling sampling{.part = {0, 0, image.height, image.width},
                         .size = scaled.size,
                         .window = {start(scaled.size.height, target_.height), start(scaled.size.width, target_.width),
                                    target_.height, target_.width},
                         .resize = resize_options(key.batch_position, false)};
  sampling.resize.row_step = scaled.row_step;
  sampling.resize.column_step = scaled.column_step;
  return sampling;
}

ImageSize ImagenetSampling::whole_at_least() const {
  if (options_.eval_central_part == 0) return target_;
  const auto whole = [this](int side) { return static_cast<int>(std::ceil(float(side) / options_.eval_central_part)); };
  return {whole(target_.height), whole(target_.width)};
}

// tf.image.central_crop computes (side - side * part) / 2 in double and rounds it down. In whole numbers, since a fused
// multiplication would round 6 to 5; the part is a float, which is no closer to 0.8 than 1e-7.
int ImagenetSampling::central_margin(int side) const {
  constexpr int64_t kParts = 1'000'000;
  const int64_t part = std::llround(double(options_.eval_central_part) * kParts);
  return static_cast<int>(side * (kParts - part) / (2 * kParts));
}

// Not smaller than the target, whatever is rounded.
ScaledSize ImagenetSampling::evaluation_size(ImageSize image) const {
  if (options_.eval_resize_size > 0) {
    ScaledSize scaled = scale_to_shorter_side(image, options_.eval_resize_size, options_.resize_convention);
    scaled.size = {std::max(scaled.size.height, target_.height), std::max(scaled.size.width, target_.width)};
    return scaled;
  }
  const auto height = static_cast<float>(image.height);
  const auto width = static_cast<float>(image.width);
  const float ratio = std::max(static_cast<float>(target_.height) / height, static_cast<float>(target_.width) / width);
  const auto scaled = [&](float side) {
    return static_cast<int>(std::min(side * ratio * kEvaluationScale, kMaxScaledSide));
  };
  return {.size = {std::max(scaled(height), target_.height), std::max(scaled(width), target_.width)}};
}

}  // namespace trainyard::data
