// Small images, for CIFAR-10 and shapes. One of another size than the target is resized to it, both sides by
// themselves: bilinear with half-pixel centres, averaging where it shrinks, rounded to whole pixel values, as Pillow
// does it. Training with distortions: padded with zeros by 4 pixels on each side, a random window of the target's size,
// half of them mirrored (He et al., "Deep Residual Learning", 2016, section 4.2). TransformOptions::translate pads with
// the reflected image instead.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "trainyard/data/augment/augmentation.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/resize.h"

namespace trainyard::data {
namespace {

Image resized(const ImageView& image, ImageSize size) {
  const size_t plane = static_cast<size_t>(size.height) * size.width;
  std::vector<float> planes(3 * plane);
  resize(image, size, {0, 0, size.height, size.width}, {.antialias = true, .half_pixel_centers = true}, planes.data());
  Image result{.height = size.height, .width = size.width};
  result.pixels.resize(3 * plane);
  for (size_t i = 0; i < 3 * plane; ++i) {
    result.pixels[i] = static_cast<uint8_t>(std::lround(std::clamp(planes[i % 3 * plane + i / 3], 0.0F, 255.0F)));
  }
  return result;
}

class CifarTransform : public Transform {
 public:
  explicit CifarTransform(const TransformOptions& options)
      : options_(options), height_(static_cast<int>(options.height)), width_(static_cast<int>(options.width)) {
    options_.validate();
  }

  ImageSize size() const override { return {height_, width_}; }

  core::Result<void> apply(const Record& record, const SampleKey& key, void* pixels) const override {
    auto* const out = static_cast<float*>(pixels);
    auto decoded = record_image(record, {}, {.exif_orientation = options_.exif_orientation});
    if (!decoded.ok()) return decoded.error();
    ImageView image = decoded.value().pixels;
    Image scaled;
    if (ImageSize{image.height, image.width} != size()) {
      scaled = resized(image, size());
      image = scaled;
    }
    const PaddedCrop crop = draw_padded_crop(options_, key);
    copy_window(image, crop.top, crop.left, {height_, width_}, crop.mirror, out, crop.border);
    apply_auto_augment(options_, key, out);
    options_.normalization.apply(out, int64_t{height_} * width_);
    apply_erasures(options_, key, out);
    return {};
  }

 private:
  const TransformOptions options_;
  const int height_, width_;
};

std::unique_ptr<Transform> make_cifar_transform(const TransformOptions& options) {
  return std::make_unique<CifarTransform>(options);
}

const core::Registration<TransformFactory> kCifar10Transform(transforms(), "cifar10", make_cifar_transform);
const core::Registration<TransformFactory> kShapesTransform(transforms(), "shapes", make_cifar_transform);

}  // namespace
}  // namespace trainyard::data
