// Encodes tensors of images as PNG files.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/formats/logs/event_file.h"

namespace trainyard::train {

// Throws kInvalidArgument unless the tensor is [H, W, 3] or [N, 3, H, W] with pixels, uint8 or of a float type.
void check_image(const std::string& name, const at::Tensor& image);

// Returns one PNG for [H, W, 3], N for [N, 3, H, W], of any device. Floats in [0, 1] are rounded to 8 bits; those
// outside are clipped, and NaN is black. The tensor has passed check_image().
std::vector<formats::EncodedImage> encode_images(const at::Tensor& image);

}  // namespace trainyard::train
