// Computes ONNX models in tests, with LibTorch's operators: each operator that to_onnx() and add_detections() write, by
// its definition in ONNX's documentation of opset 17, defaults of attributes included. Quantized models are left to the
// tests that run ONNX Runtime.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/formats/tensors/onnx.h"

namespace trainyard::nn {

using OnnxValues = std::map<std::string, at::Tensor>;  // by name

// Returns all values of the model: inputs, constants, and what operators compute. Throws std::invalid_argument for a
// node that ONNX's checker would reject, and for an operator that is not implemented here.
OnnxValues evaluate_onnx(const formats::OnnxModel& model, const OnnxValues& inputs);

}  // namespace trainyard::nn
