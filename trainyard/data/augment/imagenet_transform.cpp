// Images of any size to the fixed size of ImageNet models.
//
// Training: a random window (sample_crop), half of them mirrored, resized without keeping the aspect ratio, then colour
// distortions whose order may follow the place in the batch, and what augmentation.h adds. Evaluation: resized with the
// aspect ratio kept, the centre cut out; or, with eval_central_part, the centre cut out and resized. With the resize
// method "crop" nothing is scaled: of the random window, or of the whole image, the centre is cut out, padded with
// zeros where it is smaller.
#include <algorithm>
#include <cmath>
#include <memory>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/augmentation.h"
#include "trainyard/data/augment/imagenet_sampling.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/color.h"
#include "trainyard/data/image/resize.h"

namespace trainyard::data {
namespace {

// The part of a window from (top, left) on that lies in `bounds`, which it overlaps.
CropWindow part_inside(int top, int left, ImageSize size, const CropWindow& bounds) {
  const int y = std::max(top, bounds.y), x = std::max(left, bounds.x);
  return {y, x, std::min(top + size.height, bounds.y + bounds.height) - y,
          std::min(left + size.width, bounds.x + bounds.width) - x};
}

class ImagenetTransform : public Transform {
 public:
  explicit ImagenetTransform(const TransformOptions& options)
      : options_(options),
        sampling_(options),
        target_{static_cast<int>(options.height), static_cast<int>(options.width)} {}

  ImageSize size() const override { return target_; }

  core::Result<void> apply(const Record& record, const SampleKey& key, void* image) const override {
    auto* const out = static_cast<float*>(image);
    auto result = options_.training ? train(record, key, out) : evaluate(record, key, out);
    if (!result.ok()) return result;
    apply_auto_augment(options_, key, out);
    if (!sampling_.normalizes_as_it_resizes()) options_.normalization.apply(out, pixels());
    apply_erasures(options_, key, out);
    return result;
  }

 private:
  int64_t pixels() const { return options_.height * options_.width; }

  // Both fill float [3, height, width], normalized or in [0, 255].
  core::Result<void> train(const Record& record, const SampleKey& key, float* out) const {
    core::RandomStream random = ImagenetSampling::stream(key);
    auto size = record_image_size(record, options_.exif_orientation);
    if (!size.ok()) return size.error();
    const ImageSampling sampling = sampling_.training(size.value(), record, key, random);
    if (sampling_.scales()) {
      auto image = part(record, sampling.part, target_);
      if (!image.ok()) return image.error();
      resize(image.value().pixels, sampling.size, sampling.window, sampling.resize, out);
    } else {
      auto done = cut_centre(record, sampling.part, sampling.resize.mirror, out);
      if (!done.ok()) return done;
    }
    if (options_.distortions) distort(key.batch_position, random, out);
    return {};
  }

  core::Result<void> evaluate(const Record& record, const SampleKey& key, float* out) const {
    if (!sampling_.scales()) {
      auto size = record_image_size(record, options_.exif_orientation);
      if (!size.ok()) return size.error();
      return cut_centre(record, {0, 0, size.value().height, size.value().width}, false, out);
    }
    auto image = record_image(record, {}, decode_options(options_.eval_scaled_decode, sampling_.whole_at_least()));
    if (!image.ok()) return image.error();
    const ImageSampling sampling = sampling_.evaluation({image.value().pixels.height, image.value().pixels.width}, key);
    resize(image.value().pixels.part(sampling.part), sampling.size, sampling.window, sampling.resize, out);
    return {};
  }

  // Decoding, at a smaller size where `scaled` allows it, of what is then scaled to `size`; {0, 0}: to no fixed size.
  DecodeOptions decode_options(bool scaled, ImageSize size) const {
    return {.exif_orientation = options_.exif_orientation, .at_least = scaled ? size : ImageSize{}};
  }

  // `size`: of decode_options.
  core::Result<RecordImage> part(const Record& record, const CropWindow& crop, ImageSize size) const {
    if (options_.fuse_decode_and_crop) return record_image(record, crop, decode_options(options_.scaled_decode, size));
    auto image = record_image(record, {}, decode_options(false, {}));
    if (!image.ok()) return image;
    return RecordImage{image.value().owner, image.value().pixels.part(crop)};
  }

  core::Result<void> cut_centre(const Record& record, const CropWindow& crop, bool mirror, float* out) const {
    const int top = crop.y + centred_start(crop.height, target_.height);
    const int left = crop.x + centred_start(crop.width, target_.width);
    const CropWindow inside = part_inside(top, left, target_, crop);
    auto image = part(record, inside, {});
    if (!image.ok()) return image.error();
    copy_window(image.value().pixels, top - inside.y, left - inside.x, target_, mirror, out);
    return {};
  }

  void distort(int64_t batch_position, core::RandomStream& random, float* out) const {
    const int64_t count = 3 * pixels();
    for (int64_t i = 0; i < count; ++i) out[i] *= 1 / 255.0F;
    distort_color(ColorPlanes::of(out, pixels()), sampling_.color_distortion(batch_position), random);
    for (int64_t i = 0; i < count; ++i) out[i] *= 255.0F;
  }

  const TransformOptions options_;
  const ImagenetSampling sampling_;
  const ImageSize target_;
};

const core::Registration<TransformFactory> kImagenetTransform(transforms(), "imagenet",
                                                              [](const TransformOptions& options) {
                                                                return std::make_unique<ImagenetTransform>(options);
                                                              });

}  // namespace
}  // namespace trainyard::data
