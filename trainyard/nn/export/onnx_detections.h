// Adds to an ONNX model of a detector what makes detections of its output: softmax, decoding of the boxes,
// NonMaxSuppression in each class, and the best detections of an image (docs/formats/onnx.md).
//
//   formats::OnnxModel model = to_onnx(graph, set);
//   add_detections(model, {.default_boxes = boxes.centers()});
#pragma once

#include <cstdint>
#include <span>

#include "trainyard/formats/tensors/onnx.h"

namespace trainyard::nn {

struct OnnxDetectionOptions {
  std::span<const float> default_boxes{};  // [D, 4]: cy, cx, h, w, as parts of the image
  bool x_first = false;                    // whether offsets begin with x
  float center_scale = 0.1F, size_scale = 0.2F;
  float largest_log = 80;  // offsets of sizes, times their scale, are cut off there
  float min_score = 0.05F, overlap_threshold = 0.5F;
  int64_t candidates = 200, detections = 200;  // of a class, of an image
  bool clip = false;                           // whether boxes are cut to the image
};

// Replaces the model's only output [batch, D, 4 + classes] by "boxes" [batch, K, 4] (ymin, xmin, ymax, xmax as parts of
// the image), "scores" [batch, K], the highest first, and "labels" [batch, K] int64. K is `detections`, or less for a
// model that cannot have as many; behind an image's last detection all three are 0. Throws kInvalidArgument for a model
// with another output.
void add_detections(formats::OnnxModel& model, const OnnxDetectionOptions& options);

}  // namespace trainyard::nn
