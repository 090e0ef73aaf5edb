// Writes a graph with its weights as an ONNX file: its computation in inference mode, in standard operators of opset 17
// (docs/formats/onnx.md).
//
//   write_onnx("resnet50.onnx", executor.graph(), set);
//
// The input is "input" [batch, C, H, W], the output "logits" [batch, classes], both float32; the batch is dynamic.
// Further inputs have the names of their nodes, and outputs those of Graph::outputs, the main one first. To export the
// main output alone, pass main_output_graph(graph). Weights and statistics keep their names and stay apart: batch norms
// are BatchNormalization, not folded into convolutions, so that other programs can continue training; runtimes fold
// them by themselves. Dropout and stochastic depth are removed.
//
// A quantized network has operators around its layers by which runtimes compute in 8 bits:
//
//   write_onnx("resnet50_int8.onnx", quantized.graph, *quantized.parameters, quantized.quantization.get());
#pragma once

#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// Writes the file atomically. `set` must be allocated in float32 on the CPU, and have what the graph needs. Throws
// kUnsupported for a custom layer and for files of 2 GiB or more, kInvalidArgument for an output that is named as an
// input or a parameter, and kInvalidArgument or kNotFound for a set or a quantization that does not fit.
void write_onnx(const std::string& path, const Graph& graph, const ParameterSet& set,
                const Quantization* quantization = nullptr, core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
