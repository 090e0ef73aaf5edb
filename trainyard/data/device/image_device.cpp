#include "trainyard/data/device/image_device.h"

#include "trainyard/core/base/error.h"

namespace trainyard::data {

ImageDeviceRegistry& image_devices() {
  static auto* registry = new ImageDeviceRegistry("device for images");
  return *registry;
}

std::shared_ptr<ImageDevice> open_image_device(const std::string& kind, const ImageDeviceOptions& options) {
  if (image_devices().has(kind)) return image_devices().get(kind)(options);
  throw core::Error(
      core::ErrorCode::kUnsupported,
      {.problem = "this build decodes no images on a GPU",
       .remedy = "it needs CUDA and the header of nvJPEG (package nvidia-nvjpeg): run scripts/setup --cuda "
                 "and build again; or decode on the CPU"});
}

}  // namespace trainyard::data
