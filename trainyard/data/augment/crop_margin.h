// Evaluation images that show more than the central crop, for views of several parts of an image.
#pragma once

#include <string_view>

#include "trainyard/data/augment/transform.h"

namespace trainyard::data {

// Returns options of the transform of that name whose evaluation images keep what an evaluation with `options` scales
// but crops away: for a model of 224 x 224 that crops from a shorter side of 256, the central 256 x 256. Their central
// crop of the model's size is what `options` make, up to rounding. The ratio of the sides stays.
//
// Throws kInvalidArgument where an evaluation crops nothing away: with the transforms of small images, and when the
// shorter side is scaled to the model's size.
[[nodiscard]] TransformOptions with_crop_margin(const TransformOptions& options, std::string_view transform);

}  // namespace trainyard::data
