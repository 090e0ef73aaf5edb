// Converts COCO's JSON and images into TFRecords and back (docs/formats/coco.md).
#pragma once

#include "trainyard/data/tools/convert_dataset.h"

namespace trainyard::data {

inline constexpr const char* kCocoTarget = "coco";  // one of conversion_targets()

// Writes both subsets, as far as they exist: "tfrecord" as train-*-of-* and validation-*-of-*, "coco" as annotations,
// train2017 and val2017. All images, boxes, ids, areas, crowds and categories are kept, those that training leaves out,
// too; boxes of an image keep their order. Image files keep their bytes. Throws what open_coco() throws, kNotFound when
// there is neither subset, and the error of an image that cannot be read.
ConvertedSamples convert_coco(const ConvertOptions& options);

}  // namespace trainyard::data
