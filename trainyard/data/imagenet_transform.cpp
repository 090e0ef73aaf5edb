// Images of any size to the fixed size of ImageNet models.
//
// Training: a random window (sample_crop), half of them mirrored, resized without keeping the aspect ratio, then colour
// distortions whose order follows the place in the batch. Evaluation: resized so that both sides are 1.145 times the
// target's at least (224 -> 256), the centre cut out.
#include <algorithm>
#include <cmath>
#include <memory>

#include "trainyard/core/random.h"
#include "trainyard/data/color.h"
#include "trainyard/data/crop.h"
#include "trainyard/data/record_image.h"
#include "trainyard/data/resize.h"
#include "trainyard/data/transform.h"

namespace trainyard::data {
namespace {

constexpr float kEvaluationScale = 1.145F;

class ImagenetTransform : public Transform {
 public:
  explicit ImagenetTransform(const TransformOptions& options)
      : options_(options), target_{static_cast<int>(options.height), static_cast<int>(options.width)} {
    options_.validate();
  }

  core::Result<bool> apply(const Record& record, const SampleKey& key, float* out) const override {
    return options_.training ? train(record, key, out) : evaluate(record, key, out);
  }

 private:
  int64_t pixels() const { return options_.height * options_.width; }

  ResizeMethod method(int64_t batch_position) const {
    if (options_.resize_method != "round_robin") return resize_method(options_.resize_method);
    return static_cast<ResizeMethod>(batch_position % 4);  // the enum is in upstream's order
  }

  core::Result<bool> train(const Record& record, const SampleKey& key, float* out) const {
    core::RandomStream random(key.seed, "augment",
                              {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)});
    auto size = record_image_size(record);
    if (!size.ok()) return size.error();
    // MLPerf's rules crop without regard to the boxes.
    const CropWindow crop =
        sample_crop(size.value(), options_.subtract_means ? std::vector<Box>{} : record.boxes, {}, random);
    const bool mirror = random.coin();
    auto image = options_.fuse_decode_and_crop ? record_image(record, crop) : record_image(record);
    if (!image.ok()) return image.error();
    if (!options_.fuse_decode_and_crop) image = cut_out(image.value(), crop);
    resize(image.value(), target_, {0, 0, target_.height, target_.width},
           {.method = method(key.batch_position), .mirror = mirror}, out);
    if (options_.distortions) distort(key.batch_position, random, out);
    normalize(out, 3 * pixels(), options_.subtract_means);
    return true;
  }

  void distort(int64_t batch_position, core::RandomStream& random, float* out) const {
    const int64_t count = 3 * pixels();
    for (int64_t i = 0; i < count; ++i) out[i] *= 1 / 255.0F;
    distort_color(ColorPlanes::of(out, pixels()),
                  {.in_yiq = options_.distort_color_in_yiq, .contrast_last = batch_position % 2 == 0}, random);
    for (int64_t i = 0; i < count; ++i) out[i] *= 255.0F;
  }

  core::Result<bool> evaluate(const Record& record, const SampleKey& key, float* out) const {
    auto image = record_image(record);
    if (!image.ok()) return image.error();
    const auto height = static_cast<float>(image.value().height);
    const auto width = static_cast<float>(image.value().width);
    const float ratio =
        std::max(static_cast<float>(target_.height) / height, static_cast<float>(target_.width) / width);
    // Rounding must not make a side smaller than the target's, however odd the image.
    const ImageSize size{std::max(static_cast<int>(height * ratio * kEvaluationScale), target_.height),
                         std::max(static_cast<int>(width * ratio * kEvaluationScale), target_.width)};
    const CropWindow centre{(size.height - target_.height) / 2, (size.width - target_.width) / 2, target_.height,
                            target_.width};
    resize(image.value(), size, centre, {.method = method(key.batch_position)}, out);
    normalize(out, 3 * pixels(), options_.subtract_means);
    return true;
  }

  const TransformOptions options_;
  const ImageSize target_;
};

const core::Registration<TransformFactory> kImagenet(transforms(), "imagenet", [](const TransformOptions& options) {
  return std::make_unique<ImagenetTransform>(options);
});

}  // namespace
}  // namespace trainyard::data
