// Makes detections of the output of a detection model: softmax of the classes, decoding of the boxes, non-maximum
// suppression in each class, and the best detections of a picture.
//
//   for (const std::vector<Detection>& picture : detect(output, data::DefaultBoxes::ssd300(), {})) ...
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

namespace trainyard::data {
class DefaultBoxes;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// An object in a picture. Coordinates are parts of the picture's height and width, 0 to 1 inside of it; a box may reach
// beyond the picture unless DetectOptions::clip is set.
struct Detection {
  float ymin = 0, xmin = 0, ymax = 0, xmax = 0;
  float score = 0;    // probability of the label
  int64_t label = 0;  // 1 to classes - 1; label 0 is the background
};

// How much two boxes overlap.
enum class BoxOverlap {
  kIntersectionOverUnion,  // as torchvision and ONNX's NonMaxSuppression; suppressed where it is above the threshold
  // As tf_cnn_benchmarks' evaluation: both areas are taken from the better box's end to the other one's start.
  // Suppressed unless it is below the threshold.
  kTfCnn
};

struct DetectOptions {
  float min_score = 0.05F;  // only scores above it count
  float overlap_threshold = 0.5F;
  int64_t candidates = 200;  // best scores of a class that are looked at, 1 or more
  int64_t detections = 200;  // the most of a picture, 1 or more
  BoxOverlap overlap = BoxOverlap::kIntersectionOverUnion;
  bool clip = false;      // whether boxes are cut to the picture before they are compared
  int threads = 0;        // 0: the cores that this process may use
  void validate() const;  // throws kInvalidArgument

  // Returns the options of tf_cnn_benchmarks' evaluation: its overlap, 0.05, 0.5, 200 and 200.
  [[nodiscard]] static DetectOptions tf_cnn();
  // Returns those of torchvision's SSD300: 0.01, 0.45, 400 and 200, cut to the picture.
  [[nodiscard]] static DetectOptions torchvision();
};

// Returns the detections of each picture, those of the highest score first; of equal scores the lower label, then the
// earlier default box. `output` is [N, D, 4 + classes] of any float type, on any device: the offsets of the boxes in
// the order of `boxes`, then the logits. A default box whose scores or corners are not finite detects nothing.
// The result does not depend on the number of threads. Throws kInvalidArgument for another shape or bad options.
[[nodiscard]] std::vector<std::vector<Detection>> detect(const at::Tensor& output, const data::DefaultBoxes& boxes,
                                                         const DetectOptions& options);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
