#include "trainyard/nn/export/onnx_node_builder.h"

#include <utility>

#include <fmt/core.h>

#include "trainyard/nn/execution/quantized_numbers.h"
#include "trainyard/nn/export/exported_tensor.h"

namespace trainyard::nn {

std::string OnnxNodeBuilder::emit(std::string_view op_type, std::vector<std::string> inputs, Attributes attributes) {
  const std::string suffix = ++emitted_ == 1 ? "" : std::to_string(emitted_);
  std::string output = fmt::format("{}.output{}", node_.name, suffix);
  out_.nodes.push_back({.op_type = std::string(op_type),
                        .name = emitted_ == 1 ? node_.name : fmt::format("{}.{}", node_.name, suffix),
                        .inputs = std::move(inputs),
                        .outputs = {output},
                        .attributes = std::move(attributes)});
  return output;
}

std::string OnnxNodeBuilder::borrow(const std::string& name, const at::Tensor& tensor, const Shape& shape) {
  out_.initializers.push_back({name, shape.empty() ? tensor.sizes().vec() : shape, exported_floats(name, tensor)});
  return name;
}

std::string OnnxNodeBuilder::parameter(size_t index, const Shape& shape) {
  const std::string& name = node_.parameters.at(index).name;
  return borrow(name, exported_parameter(set_, name), shape);
}

std::string OnnxNodeBuilder::buffer(size_t index) {
  const std::string& name = node_.buffers.at(index).name;
  return borrow(name, exported_buffer(set_, name), {});
}

std::string OnnxNodeBuilder::constant(std::string name, Shape shape, decltype(formats::OnnxTensor::values) values) {
  out_.initializers.push_back({std::move(name), std::move(shape), std::move(values)});
  return out_.initializers.back().name;
}

std::string OnnxNodeBuilder::dequantize(const std::string& integers, const std::string& scales,
                                        const std::string& zero_point) {
  std::string output = integers + ".dequantized";
  out_.nodes.push_back({.op_type = "DequantizeLinear",
                        .name = output,
                        .inputs = {integers, scales, zero_point},
                        .outputs = {output},
                        .attributes = {{"axis", int64_t{0}}}});  // of the scales, where there are several
  return output;
}

std::string OnnxNodeBuilder::weight(const Shape& shape) {
  const std::vector<float>* const scales =
      quantized_ == nullptr ? nullptr : quantized_->weights[static_cast<size_t>(node_.id)];
  if (scales == nullptr) return parameter(0, shape);
  const std::string& name = node_.parameters.at(0).name;
  const at::Tensor tensor = exported_parameter(set_, name);
  exported_floats(name, tensor);  // checks it
  const at::Tensor integers = quantize_weights(node_, tensor, *scales);
  const auto* const first = integers.const_data_ptr<int8_t>();
  const auto channels = static_cast<int64_t>(scales->size());
  const std::string values = constant(name, shape.empty() ? tensor.sizes().vec() : shape,
                                      std::vector<int8_t>(first, first + integers.numel()));
  const std::string steps = constant(name + "_scale", {channels}, *scales);
  const std::string zeros =
      constant(name + "_zero_point", {channels}, std::vector<int8_t>(static_cast<size_t>(channels), 0));
  return dequantize(values, steps, zeros);
}

std::string OnnxNodeBuilder::in_eight_bits(const std::string& x, const ActivationScale& scale) {
  const std::string step = constant(node_.name + ".activation_scale", {}, std::vector<float>{scale.scale});
  const std::string zero = constant(node_.name + ".activation_zero_point", {}, std::vector<uint8_t>{scale.zero_point});
  const std::string integers = node_.name + ".eight_bits";
  out_.nodes.push_back(
      {.op_type = "QuantizeLinear", .name = integers, .inputs = {x, step, zero}, .outputs = {integers}});
  return dequantize(integers, step, zero);
}

std::string OnnxNodeBuilder::floats(std::string_view name, const Shape& shape, std::vector<float> values) {
  out_.initializers.push_back({fmt::format("{}.{}", node_.name, name), shape, std::move(values)});
  return out_.initializers.back().name;
}

std::string OnnxNodeBuilder::integers(std::string_view name, std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  out_.initializers.push_back({fmt::format("{}.{}", node_.name, name), {count}, std::move(values)});
  return out_.initializers.back().name;
}

}  // namespace trainyard::nn
