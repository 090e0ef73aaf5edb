// The input of SSD, as tf_cnn_benchmarks makes it: the transform "coco" of data::transforms().
//
// Training: a random part of the image (ssd_crop.h), scaled to the model's size, mirrored left to right half of the
// time, then changes of brightness, contrast, saturation and hue, in this order, and the normalization.
// tf_cnn_benchmarks draws one change of colours for a whole batch; here each image has its own. Batches hold "images",
// "boxes" [N, 8732, 4] float, "classes" [N, 8732] int64 and "num_matched" [N] int64, as DefaultBoxes::ssd300() encodes
// the boxes.
//
// Evaluation: the whole image, scaled to the model's size whatever its aspect ratio, and the normalization. Batches
// hold "images".
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/augment/transform.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Returns the original's options: 300 x 300, scaled as by TensorFlow 1, pixels minus ImageNet's means over its
// deviations.
[[nodiscard]] TransformOptions ssd300_input(bool training);

// The random choices for a training sample, and its boxes after them.
struct SsdDraw {
  CropWindow window{};  // pixels of the image
  bool mirrored = false;
  ColorDraw colors{};
  std::vector<Box> boxes{};  // parts of the model's image
  std::vector<int64_t> labels{};
  bool operator==(const SsdDraw&) const;
};

// Returns what the transform draws for a sample whose record is `record`. In an evaluation: the whole image, and all
// boxes as they are. Decodes nothing. Returns the error of a record whose size cannot be read.
core::Result<SsdDraw> draw_ssd(const TransformOptions& options, const Record& record, const SampleKey& key);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
