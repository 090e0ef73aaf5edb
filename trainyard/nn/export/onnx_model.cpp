#include "trainyard/nn/export/onnx_model.h"

#include <string>
#include <variant>
#include <vector>

#include "trainyard/core/base/build_info.h"
#include "trainyard/nn/export/onnx_forms.h"
#include "trainyard/nn/export/onnx_node_builder.h"

namespace trainyard::nn {
namespace {

constexpr int64_t kBatch = -1;  // open

formats::OnnxValue batch_of(const std::string& name, const Shape& shape) {
  formats::OnnxValue value{name, {kBatch}};
  value.shape.insert(value.shape.end(), shape.begin(), shape.end());
  return value;
}

void rename(formats::OnnxGraph& graph, const std::string& from, const std::string& to) {
  for (formats::OnnxNode& node : graph.nodes) {
    for (std::vector<std::string>* const values : {&node.inputs, &node.outputs}) {
      for (std::string& value : *values) {
        if (value == from) value = to;
      }
    }
  }
}

}  // namespace

formats::OnnxModel to_onnx(const Graph& graph, const ParameterSet& set) {
  formats::OnnxModel model{.producer = "trainyard",
                           .producer_version = std::string(core::build_info().version),
                           .graph = {.name = graph.name}};
  std::vector<std::string> values;  // by node
  for (const Node& node : graph.nodes) {
    OnnxNodeBuilder builder(model.graph, graph, node, set, values);
    values.push_back(std::visit([&](const auto& op) { return onnx_form(op, builder); }, node.op));
  }
  const std::string input = values.front();
  std::string& output = values[static_cast<size_t>(graph.output)];
  if (output == input) {  // a graph of nothing but dropout
    OnnxNodeBuilder builder(model.graph, graph, graph.nodes[static_cast<size_t>(graph.output)], set, values);
    output = builder.emit("Identity", {input});
  }
  rename(model.graph, output, "logits");
  model.graph.inputs = {batch_of(input, graph.input_shape())};
  model.graph.outputs = {batch_of("logits", graph.output_shape())};
  return model;
}

}  // namespace trainyard::nn
