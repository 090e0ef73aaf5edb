#include "trainyard/data/device/device_transform.h"

#include <mutex>
#include <utility>

#include "trainyard/core/base/log.h"
#include "trainyard/data/augment/imagenet_sampling.h"
#include "trainyard/data/base/stage_times.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/resize_axis.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// A device decodes whole images, each thread one: beyond this, the CPU, which decodes the window alone.
constexpr int64_t kMostPixels = int64_t{1} << 26;

PixelSampling pixel_sampling(const ImageSampling& sampling) {
  return {.rows = make_axis(sampling.part.height, sampling.size.height, sampling.window.y, sampling.window.height,
                            sampling.resize),
          .columns = make_column_axis(sampling.part.width, sampling.size.width, sampling.window.x,
                                      sampling.window.width, sampling.resize),
          .scale = sampling.resize.scale,
          .shift = sampling.resize.shift,
          .clip = sampling.resize.clip};
}

void move(Axis& axis, int pixels) {
  for (Tap& tap : axis.taps) tap.index += pixels;
}

class DeviceTransform : public Transform {
 public:
  DeviceTransform(const TransformOptions& options, std::shared_ptr<ImageDevice> device)
      : options_(options), sampling_(options), device_(std::move(device)) {
    check_device_transform(options_);
  }

  ImageForm form() const override {
    return {.dtype = device_->dtype(), .device = device_->device(), .layout = at::MemoryFormat::ChannelsLast};
  }

  ImageSize size() const override { return {static_cast<int>(options_.height), static_cast<int>(options_.width)}; }

  core::Result<void> apply(const Record& record, const SampleKey& key, void* out) const override {
    auto size = record_image_size(record, options_.exif_orientation);
    if (!size.ok()) return size.error();
    core::RandomStream random = ImagenetSampling::stream(key);
    const ImageSampling sampling = options_.training ? sampling_.training(size.value(), record, key, random)
                                                     : sampling_.evaluation(size.value(), key);
    PixelSampling pixels = pixel_sampling(sampling);
    if (on_device(record, size.value(), sampling.part, pixels, out)) return {};
    auto image = record_image(record, sampling.part, {.exif_orientation = options_.exif_orientation});
    if (!image.ok()) return image.error();
    device_->sample_pixels(image.value().pixels, pixels, out);
    return {};
  }

 private:
  bool on_device(const Record& record, ImageSize size, const CropWindow& part, const PixelSampling& of_part,
                 void* out) const {
    if (record.encoding == Encoding::kDecoded || record.encoding == Encoding::kRawChw) return false;
    std::string why_not = "it is larger than 64 million pixels";
    if (int64_t{size.height} * size.width <= kMostPixels)
      why_not = unusual_jpeg(record.bytes, options_.exif_orientation);
    if (why_not.empty()) {
      const StageTimer timer(Stage::kDecode);
      PixelSampling of_image = of_part;
      move(of_image.rows, part.y);
      move(of_image.columns, part.x);
      why_not = device_->sample_jpeg(record.bytes, size, of_image, out);
      if (why_not.empty()) return true;
    }
    std::call_once(
        told_, [&] { core::log::info("{} is decoded on the CPU ({}), as all images like it", record.where, why_not); });
    return false;
  }

  const TransformOptions options_;
  const ImagenetSampling sampling_;
  const std::shared_ptr<ImageDevice> device_;
  mutable std::once_flag told_;
};

}  // namespace

void check_device_transform(const TransformOptions& options) {
  const auto refuse = [](bool asked, const char* what, const char* remedy) {
    if (!asked) return;
    throw Error(ErrorCode::kUnsupported,
                {.problem = "images that are decoded on a GPU cannot have what only the CPU does",
                 .actual = what,
                 .remedy = remedy});
  };
  refuse(options.training && options.distortions, "colour distortions", "pass --nodistortions, or decode on the CPU");
  refuse(options.training && options.auto_augment.policy != AutoAugmentPolicy::kNone, "automatic augmentation",
         "leave --auto_augment out, or decode on the CPU");
  refuse(options.training && options.random_erasing.probability > 0, "random erasing",
         "leave --random_erasing out, or decode on the CPU");
  refuse(options.training && options.cutout > 0, "cutout", "leave --cutout out, or decode on the CPU");
  refuse(options.resize_method == "crop", "the resize method crop", "choose another --resize_method");
  refuse(options.training ? options.scaled_decode : options.eval_scaled_decode, "decoding at a part of the size",
         "pass --noscaled_decode, or decode on the CPU");
}

std::unique_ptr<Transform> make_device_transform(const TransformOptions& options, std::shared_ptr<ImageDevice> device) {
  return std::make_unique<DeviceTransform>(options, std::move(device));
}

}  // namespace trainyard::data
