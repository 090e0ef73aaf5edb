// Small images, for CIFAR-10 and shapes: never scaled. Training with distortions: padded with zeros by 4 pixels on each
// side, a random window of the target's size, half of them mirrored (He et al., "Deep Residual Learning", 2016,
// section 4.2). Otherwise the centre, padded with zeros where the image is smaller.
#include <memory>

#include "trainyard/core/random.h"
#include "trainyard/data/record_image.h"
#include "trainyard/data/transform.h"

namespace trainyard::data {
namespace {

constexpr int kPadding = 4;  // pixels on each side

// Where pixel 0 of a centred side of `target` pixels lies in an image of `size`: negative in the padding.
int centred_start(int size, int target) {
  const int difference = target - size;
  return difference >= 0 ? -(difference / 2) : -difference / 2;
}

class CifarTransform : public Transform {
 public:
  explicit CifarTransform(const TransformOptions& options)
      : options_(options), height_(static_cast<int>(options.height)), width_(static_cast<int>(options.width)) {
    options_.validate();
  }

  core::Result<bool> apply(const Record& record, const SampleKey& key, float* out) const override {
    auto decoded = record_image(record);
    if (!decoded.ok()) return decoded.error();
    const Image& image = decoded.value();
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
    copy_window(image, top, left, mirror, out);
    normalize(out, int64_t{3} * height_ * width_, options_.subtract_means);
    return true;
  }

 private:
  void copy_window(const Image& image, int top, int left, bool mirror, float* out) const {
    const ptrdiff_t plane = static_cast<ptrdiff_t>(height_) * width_;
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < width_; ++x, ++out) {
        const int row = top + y;
        const int column = left + (mirror ? width_ - 1 - x : x);
        const bool inside = row >= 0 && row < image.height && column >= 0 && column < image.width;
        const uint8_t* pixel =
            inside ? image.pixels.data() + 3 * (static_cast<ptrdiff_t>(row) * image.width + column) : nullptr;
        for (int c = 0; c < 3; ++c) out[c * plane] = inside ? static_cast<float>(pixel[c]) : 0.0F;
      }
    }
  }

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
