// Exports a graph as an ONNX model in memory, to which a caller may add metadata before it is written. write_onnx.h
// says what the model looks like.
//
//   formats::OnnxModel model = to_onnx(executor.graph(), set);
//   model.metadata = facts;
//   formats::write_onnx("resnet50.onnx", model);
#pragma once

#include "trainyard/formats/tensors/onnx.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the model. It refers to the numbers of `set`, which must outlive it, be allocated in float32 on the CPU, and
// have what the graph needs. Throws kUnsupported for a custom layer, kInvalidArgument for an output that is named as an
// input or a parameter, and kInvalidArgument or kNotFound for a set that does not fit.
[[nodiscard]] formats::OnnxModel to_onnx(const Graph& graph, const ParameterSet& set);

}  // namespace trainyard::nn
