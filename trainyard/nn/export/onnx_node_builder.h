// Builds the ONNX form of one node (onnx_forms.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/formats/tensors/onnx.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantized_nodes.h"

namespace trainyard::nn {

// Adds operators and constants to `out`. Values are referred to by name.
class OnnxNodeBuilder {
 public:
  using Attributes = std::vector<std::pair<std::string, formats::OnnxAttribute>>;

  // `values` are the names of the values of the graph's nodes so far, by id; `quantized` may be null.
  OnnxNodeBuilder(formats::OnnxGraph& out, const Graph& graph, const Node& node, const ParameterSet& set,
                  const std::vector<std::string>& values, const QuantizedNodes* quantized)
      : out_(out), graph_(graph), node_(node), set_(set), values_(values), quantized_(quantized) {}

  const Node& node() const { return node_; }
  const std::string& x(size_t input = 0) const { return values_[id_of(input)]; }
  const Shape& shape(size_t input = 0) const { return graph_.nodes[id_of(input)].shape; }  // logical
  size_t input_count() const { return node_.inputs.size(); }

  // Adds an operator with one output and returns that output's name: "<node>.output" for the first, "<node>.output2",
  // ...
  std::string emit(std::string_view op_type, std::vector<std::string> inputs, Attributes attributes = {});

  // Adds the node's parameter or buffer under its own name. The shape is the set's, or another one with the same number
  // of elements.
  std::string parameter(size_t index, const Shape& shape = {});
  std::string buffer(size_t index);

  // Adds the weight of a convolution or a linear layer, its parameter 0; of a quantized layer as integers and an
  // operator that multiplies them by their scales. Biases stay in float: as integers in steps of a product they would
  // round one value in a thousand otherwise than the executors do, layer after layer. Throws kInvalidArgument for a
  // weight that its scale cannot express.
  std::string weight(const Shape& shape = {});

  // Returns the value `x` as it is after rounding to 8 bits: QuantizeLinear, DequantizeLinear.
  std::string in_eight_bits(const std::string& x, const ActivationScale& scale);

  // Adds a constant of the operator, "<node>.<name>".
  std::string floats(std::string_view name, const Shape& shape, std::vector<float> values);
  std::string number(std::string_view name, float value) { return floats(name, {}, {value}); }
  std::string integers(std::string_view name, std::vector<int64_t> values);

 private:
  size_t id_of(size_t input) const { return static_cast<size_t>(node_.inputs.at(input)); }
  std::string borrow(const std::string& name, const at::Tensor& tensor, const Shape& shape);
  std::string constant(std::string name, Shape shape, decltype(formats::OnnxTensor::values) values);
  std::string dequantize(const std::string& integers, const std::string& scales, const std::string& zero_point);

  formats::OnnxGraph& out_;
  const Graph& graph_;
  const Node& node_;
  const ParameterSet& set_;
  const std::vector<std::string>& values_;
  const QuantizedNodes* quantized_;
  int emitted_ = 0;
};

}  // namespace trainyard::nn
