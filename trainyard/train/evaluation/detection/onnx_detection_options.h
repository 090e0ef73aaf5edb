// From the options of detect() to those of an ONNX model that does the same.
#pragma once

#include "trainyard/nn/export/onnx_detections.h"
#include "trainyard/train/evaluation/detection/detections.h"

namespace trainyard::train {

// Returns the options, which refer to `boxes`. Throws kUnsupported for another overlap than kIntersectionOverUnion.
[[nodiscard]] nn::OnnxDetectionOptions onnx_detection_options(const data::DefaultBoxes& boxes,
                                                              const DetectOptions& options);

}  // namespace trainyard::train
