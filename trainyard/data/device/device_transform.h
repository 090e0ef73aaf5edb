// ImageNet's transform on an accelerator. Windows and mirroring are drawn on the CPU, from the same streams as for its
// own transform. The device decodes JPEGs, and samples, normalizes and lays them out in one pass.
#pragma once

#include <memory>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/device/image_device.h"

namespace trainyard::data {

// Throws kUnsupported for what only the CPU's transform does, and names it: colour distortions, automatic augmentation,
// random erasing, cutout, the resize method "crop", decoding at a part of the size.
void check_device_transform(const TransformOptions& options);

// Makes the transform of the data set "imagenet". Files that the device does not decode (PNG, CMYK, what EXIF turns,
// damaged files, ...) are decoded on the CPU and sampled on the device, which is logged once. A file that neither
// decodes is the same bad sample as on the CPU. Throws as check_device_transform() does.
std::unique_ptr<Transform> make_device_transform(const TransformOptions& options, std::shared_ptr<ImageDevice> device);

}  // namespace trainyard::data
