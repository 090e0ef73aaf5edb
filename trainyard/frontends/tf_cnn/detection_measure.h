// Measures a detector's evaluation by COCO's twelve numbers, "COCO/AP" to "COCO/ARl", with the lines of
// tf_cnn_benchmarks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/frontends/tf_cnn/evaluation_measure.h"
#include "trainyard/train/evaluation/detection/detections.h"

namespace trainyard::frontends {

struct DetectionMeasureOptions {
  std::shared_ptr<const data::CocoAnnotations> annotations{};  // of all images, also those that have no boxes
  std::function<data::CocoImage(int64_t sample)> image{};      // the image of a sample of the evaluated data
  int64_t images = 0;                                          // samples of the evaluated data
  std::function<int64_t(int64_t label)> category{};            // category id of a label, 1 or more
  const data::DefaultBoxes* default_boxes = nullptr;           // those of the model, which outlive the measure
  train::DetectOptions detect{};
  // true: the numbers are computed on a thread of their own while the training goes on, and come as LateNumbers.
  bool asynchronous = false;
};

// Detects objects in each batch. An evaluation that sees an image twice counts it once, one that has not seen all
// images is measured on those that it has seen. The order in which images come, and the ranks that have them, change
// nothing.
std::unique_ptr<EvaluationMeasure> measure_detections(DetectionMeasureOptions options);

}  // namespace trainyard::frontends
