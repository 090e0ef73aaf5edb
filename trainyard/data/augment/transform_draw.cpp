#include <algorithm>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/data/augment/augmentation.h"
#include "trainyard/data/augment/imagenet_sampling.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/record_image.h"

namespace trainyard::data {
namespace {

std::string method_name(const TransformOptions& options, ResizeMethod method) {
  if (options.resize_method == "crop") return options.resize_method;
  return std::string(core::enum_name<ResizeMethod::kArea>(method, {"nearest", "bilinear", "bicubic", "area"}));
}

core::Result<TransformDraw> draw_imagenet(const TransformOptions& options, const Record& record, const SampleKey& key) {
  const ImagenetSampling sampling(options);
  auto size = record_image_size(record, options.exif_orientation);
  if (!size.ok()) return size.error();
  core::RandomStream random = ImagenetSampling::stream(key);
  TransformDraw draw;
  ImageSampling drawn{.part = {0, 0, size.value().height, size.value().width}};
  if (options.training) {
    drawn = sampling.training(size.value(), record, key, random);
  } else if (sampling.scales()) {
    drawn = sampling.evaluation(size.value(), key);
  }
  draw.window = drawn.part;
  draw.mirrored = drawn.resize.mirror;
  draw.resize_method = method_name(options, drawn.resize.method);
  if (options.training && options.distortions) {
    draw.colors = draw_color(sampling.color_distortion(key.batch_position), random);
  }
  return draw;
}

// Images of another size than the model's are scaled to it whole.
TransformDraw draw_small(const TransformOptions& options, const SampleKey& key) {
  options.validate();
  const PaddedCrop crop = draw_padded_crop(options, key);
  TransformDraw draw;
  draw.window = {crop.top, crop.left, static_cast<int>(options.height), static_cast<int>(options.width)};
  draw.mirrored = crop.mirror;
  return draw;
}

bool same_steps(const std::vector<AugmentStep>& a, const std::vector<AugmentStep>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const AugmentStep& one, const AugmentStep& other) {
    return one.op == other.op && one.magnitude == other.magnitude && one.sampling == other.sampling;
  });
}

}  // namespace

bool TransformDraw::operator==(const TransformDraw& other) const {
  return window == other.window && mirrored == other.mirrored && resize_method == other.resize_method &&
         colors == other.colors && erased == other.erased && cut_out == other.cut_out &&
         same_steps(operations, other.operations);
}

core::Result<TransformDraw> draw_transform(const std::string& transform, const TransformOptions& options,
                                           const Record& record, const SampleKey& key) {
  const bool small = transform == "cifar10" || transform == "shapes";
  if (!small && transform != "imagenet") {
    throw core::unknown_name("transform whose draws are known", transform, {"imagenet", "cifar10", "shapes"});
  }
  core::Result<TransformDraw> draw = small ? draw_small(options, key) : draw_imagenet(options, record, key);
  if (!draw.ok()) return draw;
  draw.value().operations = draw_auto_augment(options, key);
  draw.value().erased = draw_random_erasing(options, key);
  draw.value().cut_out = draw_cutout(options, key);
  return draw;
}

}  // namespace trainyard::data
