#include "trainyard/nn/export/onnx_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/export/write_onnx.h"
#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/graph/quantized_nodes.h"
#include "trainyard/nn/testing/conformance_suite.h"
#include "trainyard/nn/testing/onnx_evaluation.h"
#include "trainyard/nn/testing/opaque_layer.h"

namespace trainyard::nn::onnx_model_test {
namespace {

void fill(const at::Tensor& tensor, const std::string& name, float low, float high) {
  core::RandomStream stream(3, name);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data_ptr<float>()[i] = stream.uniform(low, high);
}

// A graph with numbers in which every parameter and statistic shows.
struct Numbers {
  explicit Numbers(const Graph& graph) {
    executor = make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
    set.allocate();
    for (const Segment& segment : set.segments()) {
      fill(set.value(segment.id), segment.spec.name, -1, 1);
    }
    for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
      if (set.buffer(i).scalar_type() == at::kFloat) fill(set.buffer(i), set.buffer_spec(i).name, 0.5F, 1.5F);
    }
  }
  ParameterSet set;
  std::unique_ptr<Executor> executor;
};

void write_array(const std::string& path, const at::Tensor& tensor) {
  const at::Tensor array = tensor.contiguous();
  const std::span<const float> values(array.const_data_ptr<float>(), static_cast<size_t>(array.numel()));
  core::local_file_system().write_file_atomically(path, formats::encode_npy<float>(array.sizes().vec(), values));
}

// Writes the model, and what goes in and comes out of it, each under its name in ONNX.
void write_with_values(const std::string& stem, const Numbers& numbers, const core::NamedTensors& inputs) {
  const Graph& graph = numbers.executor->graph();
  write_onnx(stem + ".onnx", graph, numbers.set);
  for (const int id : graph.inputs()) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    write_array(fmt::format("{}.{}.npy", stem, node.name), inputs[std::get<Input>(node.op).name]);
  }
  for (const auto& [name, output] : numbers.executor->run(inputs, {})) {
    write_array(fmt::format("{}.{}.npy", stem, name), output);
  }
}

// Outputs of each kind: one that others are made of, one value twice, an input, a dropout's.
Graph graph_of_several_values() {
  GraphBuilder b({.image = {3, 6, 5}, .name = "several"});
  const auto depth = b.input("depth", {2, 6, 5});
  const auto map = b.convolution("conv", b.concat("concat", {b.input(), depth}), {.out_channels = 4, .kernel = 3});
  const auto logits = b.linear("fc", b.global_average_pool("pool", b.activation("relu", map)), {.out_features = 5});
  const auto dropped = b.dropout("drop", logits);
  return b.build(logits, {{"map", map.id}, {"again", dropped.id}, {"same_depth", depth.id}});
}

// Local response norms without squares, as airbench's networks divide by a number: x / 16, then all of it / 1.
Graph graph_of_divisions() {
  GraphBuilder b({.image = {3, 6, 5}, .name = "divisions"});
  auto x = b.local_response_norm("scale", b.input(), {.radius = 0, .bias = 256, .alpha = 0, .beta = 0.5});
  x = b.local_response_norm("same", x, {.radius = 2, .bias = 3, .alpha = 0.5, .beta = 0});
  return b.build(b.flatten("flat", x));
}

using Visit = std::function<void(const std::string& name, const Numbers& numbers, const core::NamedTensors& inputs)>;

// Calls visit() with each layer of the conformance suite and three images, and with graphs of several values and of
// divisions.
void for_each_layer(const Visit& visit) {
  for (const LayerCase& layer : layer_cases()) {
    SCOPED_TRACE(layer.name);
    GraphBuilder b({.image = layer.image, .name = layer.name});
    const auto x = layer.build(b, b.input());
    const Graph graph = b.build(b.shape(x).size() == 1 ? x : b.flatten("flat_output", x));
    const Numbers numbers(graph);
    Shape batch = layer.image;
    batch.insert(batch.begin(), 3);
    const at::Tensor images = at::empty(batch, at::kFloat);
    const auto range = static_cast<float>(layer.range);
    fill(images, "images", -range, range);
    visit(layer.name, numbers, {{"images", images}});
  }
  const Numbers numbers(graph_of_several_values());
  const at::Tensor images = at::empty({3, 3, 6, 5}, at::kFloat), depth = at::empty({3, 2, 6, 5}, at::kFloat);
  fill(images, "images", -2, 2);
  fill(depth, "depth", -2, 2);
  visit("SeveralValues", numbers, {{"images", images}, {"depth", depth}});
  visit("Divisions", Numbers(graph_of_divisions()), {{"images", images}});
}

// Writes each layer with inputs and outputs into a folder. tests/onnx_runtime_runs_layers.py starts it, runs each model
// in ONNX Runtime and compares the outputs.
void write_each_layer(const std::string& folder) {
  for_each_layer([&](const std::string& name, const Numbers& numbers, const core::NamedTensors& inputs) {
    write_with_values(core::join_path(folder, name), numbers, inputs);
  });
}
const bool kWritesEachLayer = core::add_helper_task("TRAINYARD_ONNX_DIR", "OnnxLayers.Write", write_each_layer);

// The operators by their definitions, where no ONNX Runtime is installed. Batches of two sizes: it is open.
TEST(OnnxModel, ComputesWhatEachLayerDoes) {
  for_each_layer([](const std::string& name, const Numbers& numbers, const core::NamedTensors& inputs) {
    SCOPED_TRACE(name);
    const Graph& graph = numbers.executor->graph();
    const formats::OnnxModel model = to_onnx(graph, numbers.set);
    const core::NamedTensors expected = numbers.executor->run(inputs, {});
    for (const int64_t batch : {1, 3}) {
      OnnxValues given;
      for (const int id : graph.inputs()) {
        const Node& node = graph.nodes[static_cast<size_t>(id)];
        given[node.name] = inputs[std::get<Input>(node.op).name].narrow(0, 0, batch);
      }
      const OnnxValues values = evaluate_onnx(model, given);
      for (size_t i = 0; i < graph.outputs.size(); ++i) {
        const at::Tensor& actual = values.at(graph.outputs[i].name);
        const at::Tensor own = expected[graph.outputs[i].name].narrow(0, 0, batch);
        ASSERT_EQ(actual.sizes(), own.sizes()) << graph.outputs[i].name;
        std::vector<int64_t> shape = actual.sizes().vec();
        shape[0] = -1;
        EXPECT_EQ(model.graph.outputs[i].shape, shape);
        const double error = actual.sub(own).abs().max().item<double>() / own.abs().max().item<double>();
        EXPECT_LE(error, 1e-5) << graph.outputs[i].name << ", batch " << batch;
      }
    }
  });
}

TEST(OnnxModel, NamesAllInputsAndOutputs) {
  const Graph graph = graph_of_several_values();
  const Numbers numbers(graph);
  const formats::OnnxModel model = to_onnx(graph, numbers.set);
  const auto names = [](const std::vector<formats::OnnxValue>& values) {
    std::vector<std::string> result;
    for (const formats::OnnxValue& value : values) result.push_back(value.name);
    return result;
  };
  EXPECT_EQ(names(model.graph.inputs), (std::vector<std::string>{"input", "depth"}));
  EXPECT_EQ(names(model.graph.outputs), (std::vector<std::string>{"logits", "map", "again", "same_depth"}));
  EXPECT_EQ(model.graph.outputs[1].shape, (std::vector<int64_t>{-1, 4, 4, 3}));
  EXPECT_EQ(names(to_onnx(main_output_graph(graph), numbers.set).graph.outputs), std::vector<std::string>{"logits"});
  for (const std::string taken : {"depth", "conv.weight"}) {
    Graph clash = graph;
    clash.outputs[1].name = taken;
    EXPECT_EQ(core::message_of([&] { to_onnx(clash, numbers.set); }),
              "an output has the name of an input or a parameter: output '" + taken +
                  "' of several; give the output another name");
  }
}

// ONNX Runtime loads no LRN whose alpha or beta is 0.
TEST(OnnxModel, DividesWhereANormHasNoSquares) {
  const Graph graph = graph_of_divisions();
  const formats::OnnxModel model = to_onnx(graph, ParameterSet());
  std::vector<std::string> operators;
  for (const formats::OnnxNode& node : model.graph.nodes) operators.push_back(node.op_type);
  EXPECT_EQ(operators, (std::vector<std::string>{"Div", "Div", "Flatten"}));
  const at::Tensor images = at::empty({2, 3, 6, 5}, at::kFloat);
  fill(images, "images", -2, 2);
  const at::Tensor logits = evaluate_onnx(model, {{"input", images}}).at("logits");
  ASSERT_EQ(logits.numel(), images.numel());
  for (int64_t i = 0; i < images.numel(); ++i) {
    EXPECT_EQ(logits.contiguous().const_data_ptr<float>()[i], images.const_data_ptr<float>()[i] / 16);
  }
}

// Windows of one size where they divide both extents of the image, else products with matrices.
TEST(OnnxModel, AveragesByWindowsWhereTheyDivideTheImage) {
  struct Case {
    Size2d size;
    std::vector<int64_t> window;  // empty: matrices
  };
  for (const Case& tested : std::vector<Case>{
           {{3, 2}, {2, 2}}, {{3, 4}, {2, 1}}, {{6, 2}, {1, 2}}, {{3, 3}, {}}, {{4, 2}, {}}, {{5, 3}, {}}}) {
    SCOPED_TRACE(fmt::format("{} x {}", tested.size.height, tested.size.width));
    GraphBuilder b({.image = {2, 6, 4}, .name = "averages"});
    const Graph graph = b.build(b.flatten("flat", b.adaptive_average_pool("grid", b.input(), tested.size)));
    const Numbers numbers(graph);
    const formats::OnnxModel model = to_onnx(graph, numbers.set);
    std::vector<std::string> operators;
    for (const formats::OnnxNode& node : model.graph.nodes) operators.push_back(node.op_type);
    const std::vector<std::string> by_windows{"AveragePool", "Flatten"}, by_matrices{"MatMul", "MatMul", "Flatten"};
    EXPECT_EQ(operators, tested.window.empty() ? by_matrices : by_windows);
    if (!tested.window.empty()) {
      const decltype(formats::OnnxNode::attributes) expected{{"kernel_shape", tested.window},
                                                             {"strides", tested.window}};
      EXPECT_TRUE(model.graph.nodes.at(0).attributes == expected);
    }
    const at::Tensor images = at::empty({2, 2, 6, 4}, at::kFloat);
    fill(images, "images", -2, 2);
    const at::Tensor own = numbers.executor->run({{"images", images}}, {})["logits"];
    const at::Tensor actual = evaluate_onnx(model, {{"input", images}}).at("logits");
    ASSERT_EQ(actual.sizes(), own.sizes());
    EXPECT_LE(actual.sub(own).abs().max().item<double>(), 1e-6);
  }
}

Graph small_graph() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::same()});
  x = b.dropout("dropout", b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x))));
  return b.build(b.linear("fc", x, {.out_features = 5}));
}

TEST(WriteOnnx, WritesTheWholeModel) {
  const core::TempDir folder;
  const Numbers numbers(small_graph());
  write_onnx(folder.file("small.onnx"), small_graph(), numbers.set);
  EXPECT_EQ(core::local_file_system().read_file(folder.file("small.onnx")),
            formats::encode_onnx(to_onnx(small_graph(), numbers.set)));
}

TEST(OnnxModel, KeepsNamesAndLeavesTheBatchOpen) {
  const Graph graph = small_graph();
  const Numbers numbers(graph);
  const formats::OnnxModel model = to_onnx(graph, numbers.set);
  EXPECT_EQ(model.opset, 17);
  EXPECT_EQ(model.producer, "trainyard");
  EXPECT_EQ(model.producer_version, core::build_info().version);
  EXPECT_EQ(model.graph.name, "small");
  ASSERT_EQ(model.graph.inputs.size(), 1u);
  EXPECT_EQ(model.graph.inputs[0].name, "input");
  EXPECT_EQ(model.graph.inputs[0].shape, (std::vector<int64_t>{-1, 3, 8, 8}));
  ASSERT_EQ(model.graph.outputs.size(), 1u);
  EXPECT_EQ(model.graph.outputs[0].name, "logits");
  EXPECT_EQ(model.graph.outputs[0].shape, (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(model.graph.nodes.back().outputs, std::vector<std::string>{"logits"});
  std::set<std::string> names;
  for (const formats::OnnxTensor& tensor : model.graph.initializers) names.insert(tensor.name);
  EXPECT_EQ(names, (std::set<std::string>{"conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var",
                                          "fc.weight", "fc.bias"}));
  // Dropout has left no trace.
  EXPECT_TRUE(std::none_of(model.graph.nodes.begin(), model.graph.nodes.end(),
                           [](const formats::OnnxNode& node) { return node.name == "dropout"; }));
}

// onnx.checker refuses a graph without a name, which graphs of a caller's own need not have.
TEST(OnnxModel, AGraphWithoutANameIsCalledModel) {
  Graph graph = small_graph();
  const Numbers numbers(graph);
  graph.name.clear();
  EXPECT_EQ(to_onnx(graph, numbers.set).graph.name, "model");
}

TEST(OnnxModel, RefusesWhatItCannotSay) {
  GraphBuilder b({.image = {4}, .name = "foreign"});
  const Graph foreign = b.build(b.foreign("own", b.input(), opaque_layer("torch::nn::Own", {2})));
  try {
    to_onnx(foreign, ParameterSet());
    ADD_FAILURE() << "a custom layer was exported";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("own (torch::nn::Own)"), std::string::npos) << error.what();
  }
  ParameterSet doubles({.dtype = at::kDouble});
  make_executor("reference", small_graph(), {.dtype = at::kDouble, .mode = Mode::kInference, .parameters = &doubles});
  doubles.allocate();
  EXPECT_THAT(
      core::message_of([&] { to_onnx(small_graph(), doubles); }),
      ::testing::StartsWith("a tensor cannot be exported as it is: conv.weight: expected float32 in one piece on "
                            "the CPU, got "));
  EXPECT_EQ(core::message_of([] { to_onnx(small_graph(), ParameterSet()); }, core::ErrorCode::kNotFound),
            "the parameter set lacks what the graph needs: conv.weight");
}

// Makes the set's weights multiples of scales, which it returns.
std::vector<float> round_weights(const Node& node, ParameterSet& set) {
  const at::Tensor weight = set.value(*set.find(node.parameters[0].name));
  const int64_t per_channel = weight.numel() / weight.size(0);
  std::vector<float> scales;
  for (int64_t channel = 0; channel < weight.size(0); ++channel) {
    float* const values = weight.data_ptr<float>() + channel * per_channel;
    float largest = 0;
    for (int64_t i = 0; i < per_channel; ++i) largest = std::max(largest, std::abs(values[i]));
    scales.push_back(largest / 127);
    for (int64_t i = 0; i < per_channel; ++i) values[i] = std::nearbyint(values[i] / scales.back()) * scales.back();
  }
  return scales;
}

// The scale of a value that lies between these numbers, and zero.
ActivationScale scale_of(const at::Tensor& value) {
  float low = 0, high = 0;
  const at::Tensor numbers = value.contiguous();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    low = std::min(low, numbers.const_data_ptr<float>()[i]);
    high = std::max(high, numbers.const_data_ptr<float>()[i]);
  }
  const float scale = (high - low) / 255;
  return {scale, static_cast<uint8_t>(std::lround(-low / scale))};
}

// Scales of what is stored between fused layers, by its values for these images, and of all weights, which become
// multiples of them.
Quantization quantize_by_ranges(const Graph& graph, ParameterSet& set, const at::Tensor& images) {
  Graph all = graph;
  all.outputs.clear();
  for (const Node& node : graph.nodes) all.outputs.push_back({.name = node.name, .node = node.id});
  const auto executor = make_executor("reference", all, {.mode = Mode::kInference, .parameters = &set});
  const core::NamedTensors values = executor->run({{"images", images}}, {});
  Quantization result{.activations = {{"input", scale_of(images)}}};
  for (const Unit& unit : fuse(graph, /*frozen=*/true)) {
    const Node& node = graph.nodes[static_cast<size_t>(unit.tail())];
    result.activations[node.name] = keeps_scale(node.op)
                                        ? result.activations[graph.nodes[static_cast<size_t>(node.inputs[0])].name]
                                        : scale_of(values[node.name]);
  }
  for (const Node& node : graph.nodes) {
    if (std::holds_alternative<Convolution>(node.op) || std::holds_alternative<Linear>(node.op)) {
      result.weights[node.name] = round_weights(node, set);
    }
  }
  return result;
}

at::Tensor random_images(const Shape& shape) {
  at::Tensor images = at::empty(shape, at::kFloat);
  fill(images, "images", -2, 2);
  return images;
}

Graph graph_without_norms() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "plain"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .bias = true});
  x = b.dropout("drop", b.global_average_pool("pool", b.activation("relu", x)));
  return b.build(b.linear("fc", x, {.out_features = 5}));
}

const formats::OnnxNode& node_named(const formats::OnnxModel& model, const std::string& name) {
  const auto& nodes = model.graph.nodes;
  return *std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node.name == name; });
}

template <typename Values>
const Values& constant_named(const formats::OnnxModel& model, const std::string& name) {
  const auto& tensors = model.graph.initializers;
  return std::get<Values>(
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; })->values);
}

// Networks of layers that compute in 8 bits, as convolutional and as mobile networks have them.
std::vector<Graph> graphs_in_eight_bits() {
  using Function = Activation::Function;
  std::vector<Graph> graphs;
  {
    GraphBuilder b({.image = {3, 19, 17}, .name = "Residual"});
    auto x = b.convolution("stem", b.input(),
                           {.out_channels = 24, .kernel = 5, .stride = 2, .padding = Padding::all(2), .bias = true});
    x = b.max_pool("pool", b.activation("stem_relu", x), {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
    auto y = b.convolution("a", x, {.out_channels = 32, .kernel = 1, .bias = true});
    y = b.convolution("b", b.activation("a_relu", y),
                      {.out_channels = 32, .kernel = 3, .padding = Padding::all(1), .groups = 4, .bias = true});
    y = b.convolution("c", b.activation("b_relu", y), {.out_channels = 24, .kernel = 1, .bias = true});
    x = b.activation("sum_relu", b.add("sum", {y, x}));
    x = b.average_pool("mean", b.concat("both", {x, y}), {.kernel = 2, .stride = 2});
    x = b.global_average_pool("global", x);
    graphs.push_back(b.build(b.linear("fc", x, {.out_features = 30})));
  }
  {
    GraphBuilder b({.image = {3, 16, 16}, .name = "Mobile"});
    auto x =
        b.convolution("stem", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1), .bias = true});
    x = b.activation("stem_swish", x, Function::kHardSwish);
    auto y = b.activation("wide_silu", b.convolution("wide", x, {.out_channels = 40, .kernel = 1, .bias = true}),
                          Function::kSilu);
    y = b.convolution(
        "depthwise", y,
        {.out_channels = 40, .kernel = 3, .stride = 1, .padding = Padding::all(1), .groups = 40, .bias = true});
    y = b.activation("depthwise_relu6", y, Function::kRelu6);
    y = b.convolution("narrow", y, {.out_channels = 16, .kernel = 1, .bias = true});
    x = b.add("sum", {x, y});
    x = b.convolution("last", x, {.out_channels = 48, .kernel = 1, .stride = 2, .bias = true});
    x = b.global_average_pool("global", b.activation("last_relu", x));
    x = b.activation("hidden_relu", b.linear("hidden", x, {.out_features = 40}));
    graphs.push_back(b.build(b.linear("fc", b.dropout("drop", x), {.out_features = 30})));
  }
  return graphs;
}

// Divides weights by their number of terms' root, so that values keep their size.
void keep_sizes(const Graph& graph, ParameterSet& set) {
  for (const Node& node : graph.nodes) {
    if (node.parameters.empty()) continue;
    const at::Tensor weight = set.value(*set.find(node.parameters[0].name));
    const int64_t terms = weight.numel() / weight.size(0);
    for (int64_t i = 0; i < weight.numel(); ++i)
      weight.data_ptr<float>()[i] *= std::sqrt(3 / static_cast<float>(terms));
  }
}

// Writes networks in 8 bits with inputs and outputs into a folder, each once with rounded logits and once with floats.
// tests/runtimes_run_eight_bits.py starts it and runs them in ONNX Runtime and in OpenVINO.
void write_in_eight_bits(const std::string& folder) {
  for (const Graph& graph : graphs_in_eight_bits()) {
    for (const bool rounds_logits : {false, true}) {
      Numbers numbers(graph);
      keep_sizes(graph, numbers.set);
      Shape shape = graph.input_shape();
      shape.insert(shape.begin(), 16);
      const at::Tensor images = random_images(shape);
      auto quantization = std::make_shared<Quantization>(quantize_by_ranges(graph, numbers.set, images));
      if (!rounds_logits) quantization->activations.erase("fc");
      const auto executor = make_executor(
          "reference", graph,
          {.mode = Mode::kInference, .frozen = true, .parameters = &numbers.set, .quantization = quantization});
      const std::string stem = core::join_path(folder, graph.name + (rounds_logits ? "Rounded" : ""));
      write_onnx(stem + ".onnx", graph, numbers.set, quantization.get());
      write_array(stem + ".input.npy", images);
      write_array(stem + ".logits.npy", executor->forward(images, {}));
    }
  }
}
const bool kWritesInEightBits =
    core::add_helper_task("TRAINYARD_ONNX_EIGHT_BITS_DIR", "OnnxEightBits.Write", write_in_eight_bits);

TEST(OnnxModel, SurroundsLayersInEightBits) {
  const Graph graph = graph_without_norms();
  Numbers numbers(graph);
  const Quantization quantization = quantize_by_ranges(graph, numbers.set, random_images({2, 3, 8, 8}));
  const formats::OnnxModel model = to_onnx(graph, numbers.set, &quantization);
  EXPECT_EQ(model.graph.inputs[0].name, "input");
  std::vector<std::string> operators;
  for (const formats::OnnxNode& node : model.graph.nodes) operators.push_back(node.op_type);
  const std::string q = "QuantizeLinear", dq = "DequantizeLinear";
  // Nothing is rounded behind the dropout, which only passes values on.
  EXPECT_EQ(operators, (std::vector<std::string>{q, dq, dq, "Conv", "Relu", q, dq, "GlobalAveragePool", "Flatten", q,
                                                 dq, dq, "Gemm", q, dq}));
  EXPECT_EQ(node_named(model, "conv").inputs,
            (std::vector<std::string>{"input.eight_bits.dequantized", "conv.weight.dequantized", "conv.bias"}));
  EXPECT_EQ(node_named(model, "fc").inputs[0], "pool.eight_bits.dequantized");
  EXPECT_EQ(model.graph.nodes.back().outputs, std::vector<std::string>{"logits"});

  const std::vector<float>& scales = quantization.weights.at("conv");
  const auto& integers = constant_named<std::vector<int8_t>>(model, "conv.weight");
  const at::Tensor weight = numbers.set.value(*numbers.set.find("conv.weight"));
  ASSERT_EQ(integers.size(), 108u);
  for (size_t i = 0; i < integers.size(); ++i) {
    EXPECT_EQ(static_cast<float>(integers[i]) * scales[i / 27], weight.const_data_ptr<float>()[i]);
  }
  EXPECT_EQ(constant_named<std::vector<float>>(model, "conv.weight_scale"), scales);
  EXPECT_EQ(constant_named<std::vector<uint8_t>>(model, "relu.activation_zero_point"), std::vector<uint8_t>{0});
  EXPECT_EQ(constant_named<std::vector<uint8_t>>(model, "fc.activation_zero_point"),
            std::vector<uint8_t>{quantization.activations.at("fc").zero_point});
}

TEST(OnnxModel, LeavesInFloatWhatIs) {
  const Graph graph = graph_without_norms();
  Numbers numbers(graph);
  Quantization quantization = quantize_by_ranges(graph, numbers.set, random_images({2, 3, 8, 8}));
  quantization.weights.erase("conv");
  quantization.activations.erase("input");
  quantization.activations.erase("fc");
  const formats::OnnxModel model = to_onnx(graph, numbers.set, &quantization);
  EXPECT_EQ(node_named(model, "conv").inputs, (std::vector<std::string>{"input", "conv.weight", "conv.bias"}));
  EXPECT_EQ(node_named(model, "fc").inputs,
            (std::vector<std::string>{"pool.eight_bits.dequantized", "fc.weight.dequantized", "fc.bias"}));
  EXPECT_EQ(model.graph.nodes.back().op_type, "Gemm");
}

TEST(OnnxModel, RefusesAQuantizationThatDoesNotFit) {
  const Graph graph = graph_without_norms();
  Numbers numbers(graph);
  const Quantization quantization = quantize_by_ranges(graph, numbers.set, random_images({2, 3, 8, 8}));
  const auto message = [&](const std::function<void(Quantization&)>& spoil) {
    Quantization spoiled = quantization;
    spoil(spoiled);
    return core::message_of([&] { return to_onnx(graph, numbers.set, &spoiled); });
  };
  EXPECT_THAT(message([](Quantization& q) { q.weights["fc"].pop_back(); }), ::testing::HasSubstr("fc: expected 5"));
  EXPECT_THAT(message([](Quantization& q) { q.activations["relu"].scale = 0; }), ::testing::HasSubstr("relu"));
  // Integers of up to 254.
  EXPECT_THAT(message([](Quantization& q) { q.weights["conv"][2] /= 2; }), ::testing::HasSubstr("conv"));
}

}  // namespace
}  // namespace trainyard::nn::onnx_model_test
