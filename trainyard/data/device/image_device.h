// An accelerator that decodes images and samples them into batches in its memory. Implementation: data/cuda, with
// nvJPEG.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trainyard/core/base/registry.h"
#include "trainyard/data/image/image.h"
#include "trainyard/data/image/resize_axis.h"

namespace trainyard::data {

// The input rows and columns of each row and column of the result; values are then value * scale + shift.
struct PixelSampling {
  Axis rows, columns;
  std::array<float, 3> scale = {1, 1, 1}, shift = {0, 0, 0};
  bool clip = false;  // values are cut off at 0 and 255 before that
};

struct ImageDeviceOptions {
  int index = 0;                      // index of the device
  at::ScalarType dtype = at::kFloat;  // dtype of results: float, half or bfloat16
};

// Many threads may call it at once. Results are [rows, columns, 3] of dtype() on the device, complete when a call
// returns.
class ImageDevice {
 public:
  virtual ~ImageDevice() = default;
  virtual c10::Device device() const = 0;
  virtual at::ScalarType dtype() const = 0;

  // Samples a whole JPEG file whose header says `size`. Returns why this device does not decode it; empty when it is
  // done. Throws kNoSpace, or what the device says about itself.
  virtual std::string sample_jpeg(std::span<const std::byte> file, ImageSize size, const PixelSampling& sampling,
                                  void* out) = 0;
  // Samples decoded pixels in host memory.
  virtual void sample_pixels(const ImageView& pixels, const PixelSampling& sampling, void* out) = 0;
};

// Devices by kind: "cuda" when nvJPEG is built in. A factory throws kUnsupported where the machine lacks what it needs.
using ImageDeviceFactory = std::function<std::shared_ptr<ImageDevice>(const ImageDeviceOptions&)>;
using ImageDeviceRegistry = core::Registry<ImageDeviceFactory>;
ImageDeviceRegistry& image_devices();

// Opens a device. Throws kUnsupported with what the build or the machine lacks.
std::shared_ptr<ImageDevice> open_image_device(const std::string& kind, const ImageDeviceOptions& options);

}  // namespace trainyard::data
