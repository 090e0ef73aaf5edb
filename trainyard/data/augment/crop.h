// Samples the window of a training image.
#pragma once

#include <vector>

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns a random window inside the image, which must not be empty.
[[nodiscard]] CropWindow sample_crop(ImageSize image, const std::vector<Box>& boxes, const CropOptions& options,
                                     core::RandomStream& random);

}  // namespace trainyard::data
