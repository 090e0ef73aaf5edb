#include "trainyard/nn/export/onnx_node_builder.h"

#include <utility>

#include <fmt/core.h>

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
