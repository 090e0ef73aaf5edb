// Writes a detector as an ONNX file that makes detections by itself (docs/formats/onnx.md).
//
//   train::write_detector("ssd300.onnx", graph, trainer.parameters(), data::DefaultBoxes::ssd300());
#pragma once

#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/evaluation/detection/detections.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Writes the file atomically. Its outputs "boxes", "scores" and "labels" are what detect() makes of the graph's only
// output with `options`, whose overlap must be kIntersectionOverUnion, for all boxes that are finite. Throws
// kUnsupported for another overlap, kInvalidArgument for a graph with another output, and what nn::write_onnx() throws.
void write_detector(const std::string& path, const nn::Graph& graph, const nn::ParameterSet& parameters,
                    const data::DefaultBoxes& boxes, const DetectOptions& options = {},
                    core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
