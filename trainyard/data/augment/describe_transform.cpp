#include "trainyard/data/augment/describe_transform.h"

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

std::string triple(float red, float green, float blue) {
  return fmt::format("{:.6g},{:.6g},{:.6g}", red, green, blue);
}

std::string resize_text(const TransformOptions& options, const std::string& target) {
  if (options.resize_method == "crop") return fmt::format("centre_crop_or_pad {}x{}", options.height, options.width);
  return fmt::format("resize {} {}{}{}", target, options.resize_method, options.resize_antialias ? " antialias" : "",
                     options.resize_half_pixel_centers ? " half_pixel_centers" : "");
}

std::string size_text(const TransformOptions& options) {
  return fmt::format("{}x{}", options.height, options.width);
}

std::string crop_text(const TransformOptions& options) {
  const CropOptions& crop = options.crop;
  std::string line =
      fmt::format("{} area={:.6g}..{:.6g} aspect={:.6g}..{:.6g} attempts={}",
                  crop.method == CropMethod::kResizedCrop ? "resized_crop" : "distorted_bounding_box", crop.min_area,
                  crop.max_area, crop.min_aspect_ratio, crop.max_aspect_ratio, crop.max_attempts);
  if (crop.method == CropMethod::kDistortedBoundingBox) {
    line += fmt::format(" covered={:.6g}{}", crop.min_object_covered, options.use_boxes ? "" : " without_boxes");
  }
  return line;
}

void add_mirror(const TransformOptions& options, bool open, std::vector<std::string>& lines) {
  const Flip flip = options.flip.value_or(open ? Flip::kRandom : Flip::kNone);
  if (flip == Flip::kRandom) lines.emplace_back("mirror p=0.5");
  if (flip == Flip::kAlternating) lines.emplace_back("mirror alternating");
}

const char* sampling_text(AugmentSampling sampling) {
  switch (sampling) {
    case AugmentSampling::kNearest:
      return "nearest";
    case AugmentSampling::kBilinear:
      return "bilinear";
    case AugmentSampling::kBicubic:
      return "bicubic";
    case AugmentSampling::kRandom:
      return "drawn";
  }
  return "";
}

const char* erased_text(ErasedValue value) {
  switch (value) {
    case ErasedValue::kZero:
      return "zeros";
    case ErasedValue::kPixelNoise:
      return "noise";
    case ErasedValue::kChannelNoise:
      return "noise_by_channel";
  }
  return "";
}

void add_auto_augment(const AutoAugmentOptions& augment, std::vector<std::string>& lines) {
  if (augment.policy == AutoAugmentPolicy::kNone) return;
  std::string line = "trivial_augment";
  if (augment.policy == AutoAugmentPolicy::kRand) {
    line = fmt::format("rand_augment operations={} magnitude={} of 30", augment.num_ops, augment.magnitude);
  }
  if (augment.policy == AutoAugmentPolicy::kTimmRand) {
    line = fmt::format("timm_rand_augment operations={} magnitude={} std={:.6g}{}", augment.num_ops, augment.magnitude,
                       augment.magnitude_std, augment.increasing ? " increasing" : "");
  }
  if (augment.policy == AutoAugmentPolicy::kImagenet) line = "auto_augment imagenet";
  if (augment.policy == AutoAugmentPolicy::kCifar10) line = "auto_augment cifar10";
  if (augment.policy == AutoAugmentPolicy::kSvhn) line = "auto_augment svhn";
  const auto& fill = augment.pixels.fill;
  lines.push_back(
      fmt::format("{} {} fill={}", line, sampling_text(augment.pixels.sampling), triple(fill[0], fill[1], fill[2])));
}

void add_normalization(const Normalization& normalization, std::vector<std::string>& lines) {
  const auto& scale = normalization.scale;
  const auto mean = [&](size_t c) { return 0 - normalization.shift[c] / scale[c]; };
  lines.push_back(fmt::format("normalize mean={} std={}", triple(mean(0), mean(1), mean(2)),
                              triple(1 / scale[0], 1 / scale[1], 1 / scale[2])));
}

void add_erasing(const TransformOptions& options, std::vector<std::string>& lines) {
  const RandomErasingOptions& erasing = options.random_erasing;
  if (erasing.probability > 0) {
    lines.push_back(fmt::format("random_erasing p={:.6g} area={:.6g}..{:.6g} aspect={:.6g}..{:.6g} {}",
                                erasing.probability, erasing.min_area, erasing.max_area, erasing.min_aspect_ratio,
                                erasing.max_aspect_ratio, erased_text(erasing.value)));
  }
  if (options.cutout > 0) lines.push_back(fmt::format("cutout {}x{}", options.cutout, options.cutout));
}

// Small images of another size than the model's are scaled to it before anything else, in training, too.
std::string small_resize_text(const TransformOptions& options) {
  return "resize " + size_text(options) + " where it differs";
}

std::vector<std::string> training_lines(bool small, const TransformOptions& options) {
  std::vector<std::string> lines;
  if (small) {
    lines.push_back(small_resize_text(options));
    if (options.translate) {
      lines.push_back(fmt::format("translate {} reflected", *options.translate));
    } else if (options.distortions) {
      lines.emplace_back("pad 4 zeros");
      lines.push_back("random_crop " + size_text(options));
    }
    add_mirror(options, options.distortions, lines);
  } else {
    lines.push_back(crop_text(options));
    lines.push_back(resize_text(options, size_text(options)));
    add_mirror(options, true, lines);
    if (options.distortions) {
      lines.push_back(fmt::format("distort_colors brightness saturation hue contrast {}{}",
                                  options.distort_color_in_yiq ? "yiq" : "hsv",
                                  options.alternate_color_order ? " alternating_order" : ""));
    }
  }
  add_auto_augment(options.auto_augment, lines);
  add_normalization(options.normalization, lines);
  add_erasing(options, lines);
  return lines;
}

std::vector<std::string> evaluation_lines(bool small, const TransformOptions& options) {
  std::vector<std::string> lines;
  if (small) {
    lines.push_back(small_resize_text(options));
  } else if (options.eval_central_part > 0) {
    lines.push_back(fmt::format("central_part {:.6g}", options.eval_central_part));
    lines.push_back(resize_text(options, size_text(options)));
  } else {
    const std::string target = options.eval_resize_size > 0 ? fmt::format("shorter_side={}", options.eval_resize_size)
                                                            : std::string("both_sides_at_least=1.145_times_the_crop");
    lines.push_back(resize_text(options, target));
    if (options.resize_method != "crop") lines.push_back("centre_crop " + size_text(options));
  }
  add_normalization(options.normalization, lines);
  return lines;
}

}  // namespace

std::vector<std::string> describe_transform(const std::string& dataset, const TransformOptions& options) {
  options.validate();
  const bool small = dataset == "cifar10" || dataset == "shapes";
  if (!small && dataset != "imagenet") {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "the operations of these images are not described",
                                                      .expected = "imagenet, cifar10 or shapes",
                                                      .actual = dataset});
  }
  return options.training ? training_lines(small, options) : evaluation_lines(small, options);
}

}  // namespace trainyard::data
