#include "trainyard/nn/export/onnx_model.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/nn/export/onnx_forms.h"
#include "trainyard/nn/export/onnx_node_builder.h"
#include "trainyard/nn/graph/quantized_nodes.h"

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

bool has(const std::vector<formats::OnnxValue>& values, const std::string& name) {
  return std::any_of(values.begin(), values.end(), [&](const auto& value) { return value.name == name; });
}

// A value has one name, so an output cannot have that of an input or a parameter.
void check_names(const Graph& graph, const formats::OnnxGraph& model) {
  for (const GraphOutput& output : graph.outputs) {
    const bool is_constant = std::any_of(model.initializers.begin(), model.initializers.end(),
                                         [&](const auto& tensor) { return tensor.name == output.name; });
    if (!is_constant && !has(model.inputs, output.name)) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "an output has the name of an input or a parameter",
                       .where = fmt::format("output '{}' of {}", output.name, graph.name),
                       .remedy = "give the output another name"});
  }
}

// `values` are the names of values by node.
void add_output(formats::OnnxGraph& model, std::vector<std::string>& values, const GraphOutput& output,
                const Shape& shape) {
  const std::string value = values[static_cast<size_t>(output.node)];
  if (has(model.inputs, value) || has(model.outputs, value)) {  // as where a graph is nothing but dropout
    model.nodes.push_back({.op_type = "Identity", .name = output.name, .inputs = {value}, .outputs = {output.name}});
  } else {
    rename(model, value, output.name);
    std::replace(values.begin(), values.end(), value, output.name);
  }
  model.outputs.push_back(batch_of(output.name, shape));
}

bool is_identity(const Node& node) {
  return std::holds_alternative<Dropout>(node.op) || std::holds_alternative<StochasticDepth>(node.op);
}

}  // namespace

formats::OnnxModel to_onnx(const Graph& graph, const ParameterSet& set, const Quantization* quantization) {
  formats::OnnxModel model{.producer = "trainyard",
                           .producer_version = std::string(core::build_info().version),
                           // ONNX' checker takes no graph without a name.
                           .graph = {.name = graph.name.empty() ? "model" : graph.name}};
  std::vector<std::string> values;  // by node
  std::optional<QuantizedNodes> quantized;
  if (quantization != nullptr) quantized = quantized_nodes(graph, *quantization);
  for (const Node& node : graph.nodes) {
    OnnxNodeBuilder builder(model.graph, graph, node, set, values, quantized ? &*quantized : nullptr);
    values.push_back(std::visit([&](const auto& op) { return onnx_form(op, builder); }, node.op));
    const ActivationScale* const scale = quantized ? quantized->activations[static_cast<size_t>(node.id)] : nullptr;
    if (scale != nullptr && !is_identity(node)) values.back() = builder.in_eight_bits(values.back(), *scale);
  }
  for (const int id : graph.inputs()) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    model.graph.inputs.push_back(batch_of(node.name, node.shape));
  }
  check_names(graph, model.graph);
  for (const GraphOutput& output : graph.outputs) {
    add_output(model.graph, values, output, graph.nodes[static_cast<size_t>(output.node)].shape);
  }
  return model;
}

}  // namespace trainyard::nn
