// The operations of a transform as text, for people who compare two pipelines and for tests of recipes.
#pragma once

#include <string>
#include <vector>

#include "trainyard/data/augment/transform.h"

namespace trainyard::data {

// Returns a line for each operation that the images of the data set "imagenet", "cifar10" or "shapes" go through, in
// order, with its numbers: "resized_crop area=0.08..1 aspect=0.75..1.33333 attempts=10", "resize 176x176 bilinear
// antialias half_pixel_centers", "mirror p=0.5". Numbers have six digits. Colours are those of the data set's own
// distortions. Throws kInvalidArgument for bad options, and kUnsupported for other data sets.
[[nodiscard]] std::vector<std::string> describe_transform(const std::string& dataset, const TransformOptions& options);

}  // namespace trainyard::data
