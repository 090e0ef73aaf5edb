#include "trainyard/nn/export/onnx_forms.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {

std::string onnx_form(const Input&, OnnxNodeBuilder& b) {
  return b.node().name;
}

std::string onnx_form(const BatchNorm& op, OnnxNodeBuilder& b) {
  const Shape channels{b.shape()[0]};
  // ONNX has none without a scale.
  const std::string scale =
      op.scale ? b.parameter(0) : b.floats("weight", channels, std::vector<float>(static_cast<size_t>(channels[0]), 1));
  const std::string shift = b.parameter(op.scale ? 1 : 0);
  return b.emit("BatchNormalization", {b.x(), scale, shift, b.buffer(0), b.buffer(1)},
                {{"epsilon", static_cast<float>(op.epsilon)}});
}

std::string onnx_form(const Activation& op, OnnxNodeBuilder& b) {
  switch (op.function) {
    case Activation::Function::kRelu:
      return b.emit("Relu", {b.x()});
    case Activation::Function::kRelu6:
      return b.emit("Clip", {b.x(), b.number("minimum", 0), b.number("maximum", 6)});
    case Activation::Function::kSilu:
      return b.emit("Mul", {b.x(), b.emit("Sigmoid", {b.x()})});
    case Activation::Function::kHardSwish:
      return b.emit("HardSwish", {b.x()});
    case Activation::Function::kHardSigmoid:
      return b.emit("HardSigmoid", {b.x()}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
    case Activation::Function::kSigmoid:
      return b.emit("Sigmoid", {b.x()});
    case Activation::Function::kGelu: {
      // x * (1 + erf(x / sqrt(2))) * 0.5, the form that runtimes recognize; Gelu itself came with opset 20.
      const std::string scaled = b.emit("Div", {b.x(), b.number("sqrt2", std::sqrt(2.0F))});
      const std::string sum = b.emit("Add", {b.emit("Erf", {scaled}), b.number("one", 1)});
      return b.emit("Mul", {b.emit("Mul", {b.x(), sum}), b.number("half", 0.5F)});
    }
    case Activation::Function::kTanh:
      return b.emit("Tanh", {b.x()});
  }
  throw core::Error(core::ErrorCode::kInternal, {.problem = "unknown activation", .where = b.node().name});
}

std::string onnx_form(const Linear& op, OnnxNodeBuilder& b) {
  std::vector<std::string> inputs{b.x(), b.weight()};
  if (op.bias) inputs.push_back(b.parameter(1));
  return b.emit("Gemm", std::move(inputs), {{"transB", int64_t{1}}});
}

std::string onnx_form(const Flatten&, OnnxNodeBuilder& b) {
  return b.emit("Flatten", {b.x()}, {{"axis", int64_t{1}}});
}

std::string onnx_form(const Add&, OnnxNodeBuilder& b) {
  std::vector<std::string> inputs;
  for (size_t i = 0; i < b.input_count(); ++i) inputs.push_back(b.x(i));
  return b.emit(inputs.size() == 2 ? "Add" : "Sum", std::move(inputs));
}

std::string onnx_form(const Multiply&, OnnxNodeBuilder& b) {
  std::string scale = b.x(1);
  if (b.shape(1).size() < b.shape(0).size()) scale = b.emit("Unsqueeze", {scale, b.integers("axes", {2, 3})});
  return b.emit("Mul", {b.x(), scale});
}

std::string onnx_form(const Concat&, OnnxNodeBuilder& b) {
  std::vector<std::string> inputs;
  for (size_t i = 0; i < b.input_count(); ++i) inputs.push_back(b.x(i));
  return b.emit("Concat", std::move(inputs), {{"axis", int64_t{1}}});
}

std::string onnx_form(const ChannelPad& op, OnnxNodeBuilder& b) {
  return b.emit("Pad", {b.x(), b.integers("pads", {0, op.before, 0, 0, 0, op.after, 0, 0})});
}

std::string onnx_form(const SpatialPad& op, OnnxNodeBuilder& b) {
  return b.emit("Pad", {b.x(), b.integers("pads", {0, 0, op.top, op.left, 0, 0, op.bottom, op.right})});
}

std::string onnx_form(const ChannelSlice& op, OnnxNodeBuilder& b) {
  return b.emit("Slice", {b.x(), b.integers("starts", {op.begin}), b.integers("ends", {op.begin + op.count}),
                          b.integers("axes", {1})});
}

std::string onnx_form(const ChannelShuffle& op, OnnxNodeBuilder& b) {
  const Shape& x = b.shape();
  // A size of 0 means the input's: the batch.
  const std::string rows = b.emit("Reshape", {b.x(), b.integers("rows", {0, op.groups, x[0] / op.groups, x[1], x[2]})});
  const std::string columns = b.emit("Transpose", {rows}, {{"perm", std::vector<int64_t>{0, 2, 1, 3, 4}}});
  return b.emit("Reshape", {columns, b.integers("shape", {0, x[0], x[1], x[2]})});
}

std::string onnx_form(const Dropout&, OnnxNodeBuilder& b) {
  return b.x();
}

std::string onnx_form(const StochasticDepth&, OnnxNodeBuilder& b) {
  return b.x();
}

std::string onnx_form(const LocalResponseNorm& op, OnnxNodeBuilder& b) {
  // Without squares it is a division. ONNX Runtime loads no LRN whose alpha or beta is 0.
  if (op.alpha == 0 || op.beta == 0) {
    return b.emit("Div", {b.x(), b.number("divisor", static_cast<float>(std::pow(op.bias, op.beta)))});
  }
  const int64_t size = 2 * op.radius + 1;
  // ONNX divides alpha by the size.
  return b.emit("LRN", {b.x()},
                {{"size", size},
                 {"bias", static_cast<float>(op.bias)},
                 {"alpha", static_cast<float>(op.alpha * static_cast<double>(size))},
                 {"beta", static_cast<float>(op.beta)}});
}

std::string onnx_form(const Foreign& op, OnnxNodeBuilder& b) {
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "a custom layer has no ONNX form",
                                                    .where = b.node().name + " (" + op.description + ")",
                                                    .remedy = "build the model of layers of nn::GraphBuilder"});
}

}  // namespace trainyard::nn
