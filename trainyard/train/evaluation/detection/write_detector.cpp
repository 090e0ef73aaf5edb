#include "trainyard/train/evaluation/detection/write_detector.h"

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/onnx.h"
#include "trainyard/nn/export/onnx_model.h"
#include "trainyard/train/evaluation/detection/onnx_detection_options.h"

namespace trainyard::train {

nn::OnnxDetectionOptions onnx_detection_options(const data::DefaultBoxes& boxes, const DetectOptions& options) {
  options.validate();
  if (options.overlap != BoxOverlap::kIntersectionOverUnion) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "ONNX's NonMaxSuppression measures overlaps by intersection over union",
                       .expected = "BoxOverlap::kIntersectionOverUnion",
                       .actual = "the overlap of tf_cnn_benchmarks' evaluation"});
  }
  return {.default_boxes = boxes.centers(),
          .x_first = boxes.x_first(),
          .center_scale = boxes.center_scale(),
          .size_scale = boxes.size_scale(),
          .largest_log = static_cast<float>(boxes.largest_log()),
          .min_score = options.min_score,
          .overlap_threshold = options.overlap_threshold,
          .candidates = options.candidates,
          .detections = options.detections,
          .clip = options.clip};
}

void write_detector(const std::string& path, const nn::Graph& graph, const nn::ParameterSet& parameters,
                    const data::DefaultBoxes& boxes, const DetectOptions& options, core::FileSystem& files) {
  formats::OnnxModel model = nn::to_onnx(graph, parameters);
  nn::add_detections(model, onnx_detection_options(boxes, options));
  formats::write_onnx(path, model, files);
}

}  // namespace trainyard::train
