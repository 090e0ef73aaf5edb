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
#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {

// Returns the model. It refers to the numbers of `set`, which must outlive it, be allocated in float32 on the CPU, and
// have what the graph needs. Throws kUnsupported for a custom layer, kInvalidArgument for an output that is named as an
// input or a parameter, and kInvalidArgument or kNotFound for a set that does not fit.
//
// With `quantization` the model computes in 8 bits where that says so: each such value is QuantizeLinear (to uint8) and
// DequantizeLinear, which runtimes fuse with the layers around them, each such weight int8 and DequantizeLinear by
// output channel. `set` has the weights as multiples of their scales, as a quantized model has them; kInvalidArgument
// is thrown for others, and for a scale that is not a positive number.
[[nodiscard]] formats::OnnxModel to_onnx(const Graph& graph, const ParameterSet& set,
                                         const Quantization* quantization = nullptr);

}  // namespace trainyard::nn
