// What the transforms share: a record's pixels, and the scale in which models take them.
#pragma once

#include <optional>

#include "trainyard/core/error.h"
#include "trainyard/data/dataset.h"
#include "trainyard/data/image.h"

namespace trainyard::data {

// Errors say where the record is.
core::Result<ImageSize> record_image_size(const Record& record);
core::Result<Image> record_image(const Record& record, const std::optional<CropWindow>& crop = {});

// Pixels in [0, 255], float [3, count / 3], to what models take, in place: x / 127.5 - 1, or minus ImageNet's channel
// means (123.68, 116.78, 103.94) when `subtract_means`.
void normalize(float* image, int64_t count, bool subtract_means);

}  // namespace trainyard::data
