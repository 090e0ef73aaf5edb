// Samples the window of a training image.
#pragma once

#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

enum class CropMethod {
  // TensorFlow's sample_distorted_bounding_box: draws the aspect ratio, then the height among those that the area
  // allows, then the position, each uniformly. Draws again while the window covers too little of every box; after
  // max_attempts takes the whole image. Without boxes the image is the box.
  kDistortedBoundingBox,
  // torchvision's RandomResizedCrop: draws the area, the logarithm of the aspect ratio and the position, each
  // uniformly. Draws again while the window is larger than the image; after max_attempts takes the largest centred
  // window within the aspect ratios. Boxes are ignored.
  kResizedCrop,
};

struct CropOptions {
  CropMethod method = CropMethod::kDistortedBoundingBox;
  float min_object_covered = 0.1F;                           // part of at least one box that must be inside
  float min_aspect_ratio = 0.75F, max_aspect_ratio = 1.33F;  // width / height
  float min_area = 0.05F, max_area = 1.0F;                   // part of the image
  int max_attempts = 100;
  void validate() const;  // throws kInvalidArgument
};

// Returns a random window inside the image, which must not be empty.
[[nodiscard]] CropWindow sample_crop(ImageSize image, const std::vector<Box>& boxes, const CropOptions& options,
                                     core::RandomStream& random);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
