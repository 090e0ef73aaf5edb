// COCO's evaluation of detected boxes: twelve mean precisions and recalls, with the bits of pycocotools 2.0.11
// (COCOeval, iouType "bbox"). Lin and others, "Microsoft COCO: common objects in context", 2014;
// https://cocodataset.org/#detection-eval.
//
//   CocoMetric metric = coco_metric(annotations, detections);
//   metric.ap();                      // the mean over IoU thresholds 0.50, 0.55, ..., 0.95
//   coco_metric_lines(metric);        // as pycocotools prints it
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "trainyard/core/base/export.h"

namespace trainyard::data {
struct CocoAnnotations;
struct CocoDetection;
}  // namespace trainyard::data

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The twelve numbers, in pycocotools' order. A number is -1 where no annotated box counts for it.
struct CocoMetric {
  static constexpr size_t kValues = 12;
  // The names that tf_cnn_benchmarks gives them, without its "COCO/".
  static constexpr std::array<std::string_view, kValues> kNames = {
      "AP", "AP50", "AP75", "APs", "APm", "APl", "ARmax1", "ARmax10", "ARmax100", "ARs", "ARm", "ARl"};
  std::array<double, kValues> values{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

  double ap() const { return values[0]; }    // mean over the IoU thresholds
  double ap50() const { return values[1]; }  // at IoU 0.50
};

struct CocoMetricOptions {
  int threads = 0;  // 0: the cores that this process may use
};

// Returns the twelve numbers. Detections whose category is not annotated do not count, nor do annotated boxes whose
// image or category is not listed. The result does not depend on the number of threads. Throws kInvalidArgument for a
// detection of an image that is not listed, for numbers that are not finite and for two boxes of one id.
[[nodiscard]] CocoMetric coco_metric(const data::CocoAnnotations& annotations,
                                     std::span<const data::CocoDetection> detections,
                                     const CocoMetricOptions& options = {});

// Returns the twelve lines that pycocotools prints, each with a newline at its end.
[[nodiscard]] std::string coco_metric_lines(const CocoMetric& metric);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
