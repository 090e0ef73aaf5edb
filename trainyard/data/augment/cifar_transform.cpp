// Small images, for CIFAR-10 and shapes: never scaled. Training with distortions: padded with zeros by 4 pixels on each
// side, a random window of the target's size, half of them mirrored (He et al., "Deep Residual Learning", 2016,
// section 4.2). Otherwise the centre, padded with zeros where the image is smaller.
#include <memory>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/augmentation.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/record_image.h"

namespace trainyard::data {
namespace {

constexpr int kPadding = 4;  // pixels on each side

class CifarTransform : public Transform {
 public:
  explicit CifarTransform(const TransformOptions& options)
      : options_(options), height_(static_cast<int>(options.height)), width_(static_cast<int>(options.width)) {
    options_.validate();
  }

  ImageSize size() const override { return {height_, width_}; }

  core::Result<bool> apply(const Record& record, const SampleKey& key, void* pixels) const override {
    auto* const out = static_cast<float*>(pixels);
    auto decoded = record_image(record, {}, {.exif_orientation = options_.exif_orientation});
    if (!decoded.ok()) return decoded.error();
    const ImageView& image = decoded.value().pixels;
    int top = centred_start(image.height, height_);
    int left = centred_start(image.width, width_);
    bool mirror = false;
    if (options_.training && options_.distortions) {
      core::RandomStream random(key.seed, "augment",
                                {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)});
      top = centred_start(image.height, height_ + 2 * kPadding) + static_cast<int>(random.below(2 * kPadding + 1));
      left = centred_start(image.width, width_ + 2 * kPadding) + static_cast<int>(random.below(2 * kPadding + 1));
      mirror = random.coin();
    }
    copy_window(image, top, left, {height_, width_}, mirror, out);
    apply_auto_augment(options_, key, out);
    options_.normalization.apply(out, int64_t{height_} * width_);
    apply_random_erasing(options_, key, out);
    return true;
  }

 private:
  const TransformOptions options_;
  const int height_, width_;
};

std::unique_ptr<Transform> make_cifar_transform(const TransformOptions& options) {
  return std::make_unique<CifarTransform>(options);
}

const core::Registration<TransformFactory> kCifar10(transforms(), "cifar10", make_cifar_transform);
const core::Registration<TransformFactory> kShapes(transforms(), "shapes", make_cifar_transform);

}  // namespace
}  // namespace trainyard::data
