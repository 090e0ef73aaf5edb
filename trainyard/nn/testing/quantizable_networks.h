// What the tests of quantization share: networks with values, and images.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "trainyard/core/random/random.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::quantization_testing {

// Returns numbers of a standard normal distribution, which the name selects: [shape] float.
inline at::Tensor normal(const Shape& shape, std::string_view name) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  at::Tensor numbers = core::new_tensor({count});
  initialize_tensor(numbers, Initializer::normal(1), 7, name);
  return numbers.view(shape);
}

// Returns a set for the graph: weights by their initializers; biases, norms' variables and statistics drawn, none
// trivial.
inline ParameterSet values_for(const Graph& graph, uint64_t seed = 3) {
  ParameterSet set = declared_set(graph);
  set.initialize(seed);
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& spec : node.parameters) {
      at::Tensor value = set.value(*set.find(spec.name));
      if (spec.name.ends_with("bias")) value.copy_(normal(spec.shape, spec.name).mul(0.3));
      const bool norm = std::holds_alternative<BatchNorm>(node.op) || std::holds_alternative<LayerNorm>(node.op);
      if (norm && spec.name.ends_with("weight")) value.copy_(normal(spec.shape, spec.name).mul(0.2).add(1));
    }
    for (const BufferSpec& spec : node.buffers) {
      at::Tensor value = set.buffer(*set.find_buffer(spec.name));
      if (spec.name.ends_with("running_mean")) value.copy_(normal(spec.shape, spec.name).mul(0.3));
      if (spec.name.ends_with("running_var")) value.copy_(normal(spec.shape, spec.name).square().add(0.3));
    }
  }
  set.values_changed();
  return set;
}

// Returns the logits of the reference executor.
inline at::Tensor reference_logits(const Graph& graph, ParameterSet& set, const at::Tensor& images,
                                   std::shared_ptr<const Quantization> quantization = nullptr) {
  const auto executor = make_executor(
      "reference", graph,
      {.mode = Mode::kInference, .frozen = true, .parameters = &set, .quantization = std::move(quantization)});
  return executor->forward(images, {});
}

// Returns the largest difference as a part of the largest value.
inline double largest_difference(const at::Tensor& actual, const at::Tensor& expected) {
  return actual.sub(expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

// A residual network with a shortcut, batch norms, pools and a classifier.
inline Graph residual_network() {
  GraphBuilder b({.image = {3, 12, 12}, .name = "residual"});
  const auto unit = [&](const std::string& name, GraphBuilder::Value x, int64_t channels, int64_t stride, bool relu) {
    x = b.convolution(name, x, {.out_channels = channels, .kernel = 3, .stride = stride, .padding = Padding::all(1)});
    x = b.batch_norm(name + "_bn", x);
    return relu ? b.activation(name + "_relu", x) : x;
  };
  auto x = unit("conv1", b.input(), 16, 1, true);
  x = b.max_pool("pool1", x, {.kernel = 2, .stride = 2});
  auto y = unit("conv3", unit("conv2", x, 16, 1, true), 16, 1, false);
  x = b.activation("sum1_relu", b.add("sum1", {y, x}));
  y = unit("conv5", unit("conv4", x, 32, 2, true), 32, 1, false);
  auto shortcut = b.convolution("shortcut", x, {.out_channels = 32, .stride = 2});
  x = b.activation("sum2_relu", b.add("sum2", {y, b.batch_norm("shortcut_bn", shortcut)}));
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 10}));
}

// Inverted residuals with depthwise convolutions and ReLU6.
inline Graph depthwise_network(Activation::Function function = Activation::Function::kRelu6) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "depthwise"});
  const auto unit = [&](const std::string& name, GraphBuilder::Value x, const Convolution& op, bool active) {
    x = b.batch_norm(name + "_bn", b.convolution(name, x, op));
    return active ? b.activation(name + "_act", x, function) : x;
  };
  auto x = unit("stem", b.input(), {.out_channels = 8, .kernel = 3, .padding = Padding::all(1)}, true);
  for (int block = 0; block < 2; ++block) {
    const std::string name = "block" + std::to_string(block);
    auto y = unit(name + "_expand", x, {.out_channels = 24}, true);
    y = unit(name + "_depthwise", y, {.out_channels = 24, .kernel = 3, .padding = Padding::all(1), .groups = 24}, true);
    x = b.add(name + "_sum", {unit(name + "_project", y, {.out_channels = 8}, false), x});
  }
  x = unit("last", x, {.out_channels = 32}, true);
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 6}));
}

// Two blocks of a vision transformer.
inline Graph transformer() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "transformer"});
  const auto linear = [&](const std::string& name, GraphBuilder::Value x, int64_t channels) {
    return b.convolution(name, x, {.out_channels = channels, .bias = true, .form = Convolution::Form::kLinear});
  };
  auto x = b.convolution("patches", b.input(), {.out_channels = 16, .kernel = 2, .stride = 2, .bias = true});
  x = b.position_embedding("positions", b.class_token("token", x, {}), {});
  for (int block = 0; block < 2; ++block) {
    const std::string name = "block" + std::to_string(block);
    auto y = linear(name + "_qkv", b.layer_norm(name + "_norm1", x, {}), 48);
    y = linear(name + "_out", b.attention(name + "_attention", y, {.heads = 2}), 16);
    x = b.add(name + "_sum1", {y, x});
    y = linear(name + "_up", b.layer_norm(name + "_norm2", x, {}), 32);
    y = linear(name + "_down", b.activation(name + "_gelu", y, Activation::Function::kGelu), 16);
    x = b.add(name + "_sum2", {y, x});
  }
  x = b.layer_norm("norm", x, {});
  return b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = 5}));
}

}  // namespace trainyard::nn::quantization_testing
