// Measures a detector's evaluation by COCO's twelve numbers, "COCO/AP" to "COCO/ARl", with the lines of
// tf_cnn_benchmarks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/frontends/tf_cnn/evaluation_measure.h"
#include "trainyard/train/evaluation/detection/detection_evaluation.h"

namespace trainyard::frontends {

struct DetectionMeasureOptions {
  data::CocoAnnotations annotations{};                     // of the images that an evaluation may see
  std::function<data::CocoImage(int64_t sample)> image{};  // the image of a sample of the evaluated data
  int64_t images = 0;                                      // samples that an evaluation sees,
  int64_t all_images = 0;                                  // of so many
  const data::DefaultBoxes* default_boxes = nullptr;       // those of the model, which outlive the measure
  train::DetectionEvaluationOptions detection{};
  // true: evaluations do not wait for their numbers, which come as LateNumbers.
  bool asynchronous = false;
};

// An evaluation that sees an image twice counts it once. The order in which images come, and the ranks that have them,
// change nothing. Asynchronous numbers are for one process alone.
std::unique_ptr<EvaluationMeasure> measure_detections(DetectionMeasureOptions options);

// Returns the annotations of those images alone.
[[nodiscard]] data::CocoAnnotations annotations_of_images(data::CocoAnnotations annotations,
                                                          const std::vector<int64_t>& image_ids);

}  // namespace trainyard::frontends
