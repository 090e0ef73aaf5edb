// ImageNet's transform on a device beside the CPU: windows and mirroring are drawn here, as they are for the CPU's
// transform and from the same streams; JPEGs are decoded there, and sampled, normalized and laid out in one pass.
#pragma once

#include <memory>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/device/image_device.h"

namespace trainyard::data {

// Throws kUnsupported, naming it, for what only the CPU's transform does: colour distortions, automatic augmentation,
// random erasing, the resize method "crop", EXIF's orientation, decoding at a part of the size.
void check_device_transform(const TransformOptions& options);

// Of data set "imagenet". What the device does not decode (PNG, CMYK, damaged files, ...) is decoded here and sampled
// there: one line says so. A file that nobody decodes is the same bad sample as on the CPU. Throws as
// check_device_transform().
std::unique_ptr<Transform> make_device_transform(const TransformOptions& options, std::shared_ptr<ImageDevice> device);

}  // namespace trainyard::data
