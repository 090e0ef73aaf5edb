// Models written by to_keras_model() and read back; tests/program_test.py has Keras itself on the other side.
#include "trainyard/nn/import/keras_import.h"

#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/std.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/nn/export/keras_model.h"
#include "trainyard/nn/export/keras_weights.h"
#include "trainyard/nn/testing/bound.h"

namespace trainyard::nn::keras_import_test {
namespace {

using testing::Bound;
using ::testing::HasSubstr;
using Value = GraphBuilder::Value;

// Every operation that passes through Keras' layers, and back.
Graph all_operations() {
  GraphBuilder b({.image = {4, 12, 12}, .name = "all"});
  Value x = b.convolution("odd", b.input(), {.out_channels = 8, .kernel = 3, .padding = Padding::all(1), .bias = true});
  x = b.activation("relu", b.batch_norm("bn", x));
  Value y = b.convolution("strided", x, {.out_channels = 8, .kernel = 3, .stride = 2, .padding = Padding::all(1)});
  Value z = b.max_pool("pool", x, {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  z = b.channel_slice("slice", b.channel_pad("pad", z, {.before = 2, .after = 2}), {.begin = 2, .count = 8});
  x = b.add("add", {y, b.channel_shuffle("shuffle", z, 4)});
  y = b.convolution("depthwise", x,
                    {.out_channels = 16, .kernel = {3, 2}, .padding = {.top = 1, .bottom = 1, .left = 1}, .groups = 8});
  y = b.activation("silu", b.batch_norm("unscaled", y, {.scale = false}), Activation::Function::kSilu);
  const Value scale =
      b.activation("gate", b.linear("excite", b.global_average_pool("squeeze", y), {.out_features = 16}),
                   Activation::Function::kSigmoid);
  y = b.stochastic_depth("depth", b.multiply("multiply", y, scale), 0.2);
  y = b.concat("concat", {x, y});
  y = b.activation("relu6", b.layer_norm("norm", y, {}), Activation::Function::kRelu6);
  y = b.upsample("up", b.average_pool("mean", y, {.kernel = 2, .stride = 2}), {.factor = 2});
  y = b.transposed_convolution("transposed", y, {.out_channels = 6, .kernel = 3, .stride = 2});
  y = b.spatial_pad("border", y, {.top = -1, .bottom = 2, .left = 0, .right = -3});
  y = b.convolution("pixels", y, {.out_channels = 5, .bias = true, .form = Convolution::Form::kLinear});
  y = b.dropout("dropout", b.flatten("flatten", b.adaptive_average_pool("grid", y, {1, 1})));
  return b.build(b.linear("fc", y, {.out_features = 3}));
}

TEST(KerasImport, AModelComesBackAsItWent) {
  const core::TempDir temp;
  const Graph graph = all_operations();
  const Bound written(graph);
  formats::write_hdf5(temp.file("m.h5"), to_keras_model(graph, written.set, {.softmax = true}));

  const formats::Hdf5File file(temp.file("m.h5"));
  const KerasModel model = read_keras_model(file);
  EXPECT_TRUE(model.softmax);
  EXPECT_EQ(model.graph.parameter_count(), graph.parameter_count());
  Bound read(model.graph);
  load_keras_weights(file, model, read.set);
  const at::Tensor images = at::rand({3, 4, 12, 12});
  const at::Tensor expected = written.executor->forward(images, {}), actual = read.executor->forward(images, {});
  EXPECT_TRUE(at::allclose(actual, expected, 1e-6, 1e-6));
  EXPECT_GT(expected.std().item<double>(), 1e-3);
  // Padding in front of a convolution is the convolution's again.
  for (const Node& node : model.graph.nodes) EXPECT_THAT(node.name, Not(HasSubstr("strided_pad")));
}

std::vector<float> golden_numbers(const std::string& name) {
  std::istringstream text(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/nn/testdata/keras_model_" + name + ".txt")));
  return {std::istream_iterator<float>(text), {}};
}

// tools/golden/keras_model.py
TEST(KerasImport, AModelOfKerasGivesKerasNumbers) {
  const formats::Hdf5File file(core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/nn/testdata/keras_model.h5"));
  const KerasModel model = read_keras_model(file);
  EXPECT_TRUE(model.softmax);
  std::vector<float> pixels = golden_numbers("images"), golden = golden_numbers("probabilities");
  const at::Tensor images = at::from_blob(pixels.data(), {2, 10, 10, 3}, at::kFloat).permute({0, 3, 1, 2});
  const at::Tensor expected = at::from_blob(golden.data(), {2, 4}, at::kFloat);
  for (const char* const kind : {"reference", "cpu"}) {
    Bound bound(model.graph, kind);
    load_keras_weights(file, model, bound.set);
    const at::Tensor logits = bound.executor->forward(images.contiguous(), {});
    EXPECT_TRUE(at::allclose(at::softmax(logits, 1), expected, 1e-5, 1e-6)) << kind << logits;
  }
}

TEST(KerasImport, WeightsOfAnotherModelAreRefused) {
  const core::TempDir temp;
  GraphBuilder b({.image = {3, 4, 4}, .name = "small"});
  const Graph graph = b.build(b.global_average_pool("pool", b.convolution("conv", b.input(), {.out_channels = 2})));
  const Bound small(graph);
  formats::write_hdf5(temp.file("m.h5"), to_keras_model(graph, small.set));
  const formats::Hdf5File file(temp.file("m.h5"));
  KerasModel model = read_keras_model(file);
  GraphBuilder other({.image = {3, 4, 4}, .name = "other"});
  model.graph =
      other.build(other.global_average_pool("pool", other.convolution("conv", other.input(), {.out_channels = 5})));
  Bound bound(model.graph);
  EXPECT_THAT(core::message_of([&] { load_keras_weights(file, model, bound.set); }, core::ErrorCode::kCorruptData),
              HasSubstr("[1, 1, 3, 5]"));
}

// Reads a file with this config and nothing else.
KerasModel model_of(const std::string& config) {
  const core::TempDir temp;
  formats::write_hdf5(temp.file("m.h5"), {.attributes = {{"model_config", config}}});
  return read_keras_model(formats::Hdf5File(temp.file("m.h5")));
}

std::string refusal(const std::string& config, core::ErrorCode code = core::ErrorCode::kCorruptData) {
  return core::message_of([&] { model_of(config); }, code);
}

std::string config_of(const std::string& layers, const std::string& output) {
  return R"({"class_name": "Functional", "config": {"name": "m", "input_layers": ["i", 0, 0], "output_layers": [")" +
         output +
         R"(", 0, 0], "layers": [{"class_name": "InputLayer", "name": "i", "inbound_nodes": [],
             "config": {"batch_shape": [null, 4, 4, 3]}}, )" +
         layers + "]}}";
}

// A file with this config and one layer of weights, whose numbers are to be added.
formats::Hdf5Group file_of(const std::string& config, const std::string& layer,
                           const std::vector<std::string>& weights) {
  formats::Hdf5Group group{.name = layer};
  group.attributes.emplace_back("weight_names", weights);
  formats::Hdf5Group all{.name = "model_weights"};
  all.attributes.emplace_back("layer_names", std::vector<std::string>{layer});
  all.groups.push_back(std::move(group));
  formats::Hdf5Group root;
  root.attributes.emplace_back("model_config", config);
  root.groups.push_back(std::move(all));
  return root;
}

// The rows of a Dense kernel behind two flattened images would be in another order.
TEST(KerasImport, WeightsBehindJoinedFlattenedImagesAreRefused) {
  const core::TempDir temp;
  GraphBuilder b({.image = {3, 4, 4}, .name = "joined"});
  const Value x = b.convolution("conv", b.input(), {.out_channels = 2});
  const Value joined = b.concat("concat", {b.flatten("a", x), b.flatten("b", b.input())});
  const Graph graph = b.build(b.linear("fc", joined, {.out_features = 3}));
  const Bound bound(graph);
  EXPECT_THAT(core::message_of([&] { static_cast<void>(to_keras(graph, bound.set)); }, core::ErrorCode::kUnsupported),
              ::testing::AllOf(HasSubstr("fc"), HasSubstr("with other layers between")));
}

// A Conv2D of as many groups as channels has its kernel as [height, width, 1, out], a DepthwiseConv2D as
// [height, width, in, out / in]: the same numbers in the same order.
TEST(KerasImport, AKernelForEachChannelIsReadFromBothLayers) {
  const std::string window =
      R"("kernel_size": [1, 2], "strides": [1, 1], "padding": "valid", "dilation_rate": [1, 1], "use_bias": false)";
  const auto convolution = [&](const std::string& kind, const std::string& channels) {
    return R"({"class_name": ")" + kind + R"(", "name": "c", "config": {)" + window + ", " + channels +
           R"(}, "inbound_nodes": [[["i", 0, 0, {}]]]})";
  };
  const auto weights_of = [](const std::string& layer, const std::vector<int64_t>& shape) {
    const auto kernel = [] {
      std::vector<float> numbers(12);
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
      return numbers;
    };
    formats::Hdf5Group root = file_of(config_of(layer, "c"), "c", {"c/kernel"});
    root.groups[0].groups[0].datasets.push_back({"c/kernel", shape, kernel});
    return root;
  };
  const std::string grouped = convolution("Conv2D", R"("filters": 6, "groups": 3)"),
                    depthwise = convolution("DepthwiseConv2D", R"("depth_multiplier": 2)");
  const core::TempDir temp;
  for (const formats::Hdf5Group& root :
       {weights_of(grouped, {1, 2, 1, 6}), weights_of(depthwise, {1, 2, 3, 2}), weights_of(grouped, {1, 2, 2, 3})}) {
    const std::vector<int64_t>& shape = root.groups[0].groups[0].datasets[0].shape;
    formats::write_hdf5(temp.file("m.h5"), root);
    const formats::Hdf5File file(temp.file("m.h5"));
    const KerasModel model = read_keras_model(file);
    Bound bound(model.graph);
    if (shape[2] == 2) {
      EXPECT_EQ(core::code_of([&] { load_keras_weights(file, model, bound.set); }), core::ErrorCode::kCorruptData);
      continue;
    }
    load_keras_weights(file, model, bound.set);
    const at::Tensor weight = bound.set.value(*bound.set.find("c.weight"));  // [6, 1, 1, 2]
    const auto* const numbers = weight.const_data_ptr<float>();
    for (int out = 0; out < 6; ++out) {
      for (int x = 0; x < 2; ++x) EXPECT_EQ(numbers[2 * out + x], static_cast<float>(6 * x + out)) << shape[2];
    }
  }
}

// A layer without weights and what it is called with: "c, 0, 0" for each.
std::string layer_of(const std::string& kind, const std::string& name, const std::string& config,
                     const std::vector<std::string>& inputs) {
  std::string calls;
  for (const std::string& input : inputs) calls += (calls.empty() ? "[\"" : ", [\"") + input + "\", 0, 0, {}]";
  return R"({"class_name": ")" + kind + R"(", "name": ")" + name + R"(", "config": )" + config +
         R"(, "inbound_nodes": [[)" + calls + "]]}";
}

// What is said of a single layer "l" that a graph lacks.
std::string unsupported(const std::string& kind, const std::string& config) {
  return refusal(config_of(layer_of(kind, "l", config, {"i"}), "l"), core::ErrorCode::kUnsupported);
}

std::string convolution_of(const std::string& name, int filters, int kernel, const std::string& activation) {
  const std::string side = std::to_string(kernel);
  return layer_of("Conv2D", name,
                  R"({"strides": [1, 1], "padding": "valid", "dilation_rate": [1, 1], "kernel_size": [)" + side + ", " +
                      side + R"(], "filters": )" + std::to_string(filters) + R"(, "activation": ")" + activation +
                      "\"}",
                  {"i"});
}

TEST(KerasImport, WhatAGraphRefusesIsNamedWithLayerAndFile) {
  const std::string pool = layer_of("GlobalAveragePooling2D", "p", "{}", {"i"}),
                    norm = layer_of("BatchNormalization", "n", "{}", {"p"}),
                    convolution = convolution_of("a", 2, 1, "relu"),
                    relu = layer_of("Activation", "a_relu", R"({"activation": "relu"})", {"a"});
  EXPECT_THAT(
      refusal(config_of(pool + "," + norm, "n"), core::ErrorCode::kUnsupported),
      ::testing::AllOf(HasSubstr("m.h5"), HasSubstr("n (BatchNormalization)"), HasSubstr("needs an image [C, H, W]")));
  EXPECT_THAT(refusal(config_of(convolution + "," + relu, "a_relu"), core::ErrorCode::kUnsupported),
              ::testing::AllOf(HasSubstr("m.h5"), HasSubstr("a_relu (Activation)"), HasSubstr("name exists already")));
}

// The elements of an image count channels first here, and last in Keras.
TEST(KerasImport, FactorsOfChannelsThatAreAFlattenedImageAreRefused) {
  const auto layers = [](int filters, int kernel) {
    return convolution_of("c", 8, 1, "linear") + "," + convolution_of("g", filters, kernel, "linear") + "," +
           layer_of("Flatten", "f", "{}", {"g"}) + "," + layer_of("Multiply", "m", "{}", {"c", "f"});
  };
  EXPECT_THAT(refusal(config_of(layers(2, 3), "m"), core::ErrorCode::kUnsupported), HasSubstr("m (Multiply)"));
  EXPECT_EQ(model_of(config_of(layers(8, 4), "m")).graph.output_shape(), (Shape{8, 4, 4}));
}

TEST(KerasImport, WeightsInAnotherOrderAreRefusedWithLayerAndFile) {
  const std::string layers = layer_of("Flatten", "f", "{}", {"i"}) + "," + layer_of("Add", "a", "{}", {"f", "f"}) +
                             "," + layer_of("Dense", "dense", R"({"units": 2})", {"a"});
  const core::TempDir temp;
  formats::write_hdf5(temp.file("m.h5"), file_of(config_of(layers, "dense"), "dense", {"dense/kernel", "dense/bias"}));
  const formats::Hdf5File file(temp.file("m.h5"));
  const KerasModel model = read_keras_model(file);
  Bound bound(model.graph);
  EXPECT_THAT(core::message_of([&] { load_keras_weights(file, model, bound.set); }, core::ErrorCode::kUnsupported),
              ::testing::AllOf(HasSubstr("m.h5"), HasSubstr("dense"), HasSubstr("with other layers between")));
}

// Each sum doubles the ways from the output to the input.
TEST(KerasImport, SumsOfAValueWithItselfAreReadAtOnce) {
  constexpr int kSums = 64;
  std::string layers = layer_of("GlobalAveragePooling2D", "s0", "{}", {"i"});
  for (int i = 1; i <= kSums; ++i) {
    const std::string before = "s" + std::to_string(i - 1);
    layers += "," + layer_of("Add", "s" + std::to_string(i), "{}", {before, before});
  }
  EXPECT_EQ(model_of(config_of(layers, "s" + std::to_string(kSums))).graph.output_shape(), (Shape{3}));
}

// As all_operations(), where height and width differ everywhere, and with the functions that it leaves out.
Graph oblong_operations() {
  GraphBuilder b({.image = {4, 10, 7}, .name = "oblong"});
  using Function = Activation::Function;
  Value x = b.convolution(
      "c1", b.input(),
      {.out_channels = 6, .kernel = {3, 2}, .stride = {2, 1}, .padding = {.top = 1, .right = 2}, .bias = true});
  x = b.activation("a1", x, Function::kHardSwish);
  x = b.convolution("c2", x, {.out_channels = 6, .kernel = {2, 3}, .dilation = {2, 1}, .groups = 3});
  x = b.average_pool("p1", b.activation("a2", x, Function::kTanh), {.kernel = {2, 1}, .stride = {1, 2}});
  x = b.activation("a3", x, Function::kGelu);
  x = b.transposed_convolution("t", x, {.out_channels = 4, .kernel = {3, 2}, .stride = {2, 1}, .bias = true});
  x = b.activation("a4", x, Function::kSigmoid);
  x = b.max_pool("p2", x, {.kernel = {3, 2}, .stride = 2, .padding = {.top = 1}});
  x = b.activation("a5", x, Function::kHardSigmoid);
  x = b.upsample("up", x, {.kind = Upsample::Kind::kBilinear, .factor = 2});
  x = b.spatial_pad("border", x, {.top = -1, .left = 2, .right = -1});
  x = b.channel_slice("slice", b.channel_pad("pad", x, {.before = 1, .after = 3}), {.begin = 2, .count = 6});
  x = b.adaptive_average_pool("grid", b.channel_shuffle("shuffle", x, 2), {3, 1});
  return b.build(b.linear("fc", b.flatten("flatten", x), {.out_features = 3}));
}

TEST(KerasImport, ANetworkOfOblongImagesComesBackAsItWent) {
  const core::TempDir temp;
  const Graph graph = oblong_operations();
  const Bound written(graph);
  formats::write_hdf5(temp.file("m.h5"), to_keras_model(graph, written.set));
  const formats::Hdf5File file(temp.file("m.h5"));
  const KerasModel model = read_keras_model(file);
  EXPECT_FALSE(model.softmax);
  EXPECT_EQ(model.graph.input_shape(), (Shape{4, 10, 7}));
  for (const char* const name : {"c1", "c2", "p1", "t", "p2", "up", "border", "shuffle", "grid"}) {
    EXPECT_EQ(model.graph.node(name).shape, graph.node(name).shape) << name;
  }
  Bound read(model.graph);
  load_keras_weights(file, model, read.set);
  const at::Tensor images = at::rand({3, 4, 10, 7});
  const at::Tensor expected = written.executor->forward(images, {}), actual = read.executor->forward(images, {});
  EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-6)) << graph.name;
}

KerasModel model_of(const std::string& layers, const std::string& output) {
  return model_of(config_of(layers, output));
}

// The graph of layers that are called one with the other, each "l<number>".
Graph graph_of_chain(const std::vector<std::pair<std::string, std::string>>& chain) {
  std::string layers;
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto& [kind, config] = chain[i];
    const std::string before = i == 0 ? "i" : "l" + std::to_string(i - 1);
    layers += (i == 0 ? "" : ",") + layer_of(kind, "l" + std::to_string(i), config, {before});
  }
  return model_of(layers, "l" + std::to_string(chain.size() - 1)).graph;
}

TEST(KerasImport, LayersHaveTheOptionsOfTheirConfigs) {
  const Graph graph = graph_of_chain({
      {"Conv2D",
       R"({"kernel_size": [3, 2], "strides": [2, 1], "dilation_rate": [1, 1], "filters": 5, "padding": "same"})"},
      {"BatchNormalization", R"({"momentum": 0.5, "epsilon": 0.25, "scale": false, "axis": [3]})"},
      {"LayerNormalization", R"({"epsilon": 0.125})"},
      {"MaxPooling2D", R"({"pool_size": [2, 1], "strides": [1, 2], "padding": "valid"})"},
      {"Dropout", R"({"rate": 0.25})"},
      {"Dropout", R"({"rate": 0.125, "noise_shape": [null, 1, 1, 1]})"},
      {"ReLU", R"({"max_value": 6.0})"},
      {"UpSampling2D", R"({"size": [2, 2], "interpolation": "bilinear"})"},
      {"ZeroPadding2D", R"({"padding": [[1, 2], [3, 4]]})"},
      {"Cropping2D", R"({"cropping": [[1, 0], [0, 2]]})"},
      {"Dense", R"({"units": 3, "use_bias": false})"},
      {"BatchNormalization", "{}"},
      {"LayerNormalization", "{}"},
      {"Dropout", "{}"},
      {"GlobalAveragePooling2D", R"({"keepdims": false})"},
  });
  EXPECT_EQ(graph.name, "m");
  const auto& convolution = std::get<Convolution>(graph.node("l0").op);
  EXPECT_EQ(convolution.kernel, Size2d(3, 2));
  EXPECT_EQ(convolution.stride, Size2d(2, 1));
  EXPECT_EQ(convolution.padding, Padding::same());
  EXPECT_TRUE(convolution.bias) << "Keras' default";
  EXPECT_EQ(graph.node("l0").shape, (Shape{5, 2, 4}));
  EXPECT_EQ(graph.node("l1").description(), "epsilon 0.25, decay 0.5, no scale, biased running variance");
  EXPECT_EQ(graph.node("l2").description(), "epsilon 0.125");
  EXPECT_EQ(graph.node("l3").description(), "2x1 / 1x2");
  EXPECT_EQ(graph.node("l3").kind(), "max_pool");
  EXPECT_EQ(graph.node("l4").description(), "drop 0.25");
  EXPECT_EQ(graph.node("l5").kind(), "stochastic_depth");
  EXPECT_EQ(graph.node("l5").description(), "drop 0.125");
  EXPECT_EQ(graph.node("l6").description(), "relu6");
  EXPECT_EQ(graph.node("l7").description(), "bilinear x 2");
  EXPECT_EQ(graph.node("l8").description(), "1 + 2 rows, 3 + 4 columns");
  EXPECT_EQ(graph.node("l9").description(), "-1 + 0 rows, 0 + -2 columns");
  EXPECT_EQ(graph.node("l9").shape, (Shape{5, 4, 9}));
  EXPECT_EQ(graph.node("l10").description(), "3 x 1x1, linear");
  EXPECT_EQ(graph.node("l11").description(), "epsilon 0.001, decay 0.99, biased running variance");
  EXPECT_EQ(graph.node("l12").description(), "epsilon 0.001");
  EXPECT_EQ(graph.node("l13").description(), "drop 0.5");
  EXPECT_EQ(graph.output_shape(), Shape{3});
}

TEST(KerasImport, OptionsWithoutACounterpartAreNamed) {
  const auto transposed = [&](const std::string& strides, const std::string& more) {
    return unsupported("Conv2DTranspose",
                       R"({"filters": 2, "kernel_size": [2, 3], "strides": )" + strides + more + "}");
  };
  struct Case {
    const char *kind, *config, *problem;
  };
  for (const Case& tested :
       std::vector<Case>{{"ReLU", R"({"max_value": 3.0})", "max_value 3"},
                         {"ReLU", R"({"negative_slope": 0.5})", "a slope or a threshold"},
                         {"ReLU", R"({"threshold": 1.0})", "a slope or a threshold"},
                         {"Activation", R"({"activation": "elu"})", "activation elu"},
                         {"BatchNormalization", R"({"axis": 1})", "axis 1"},
                         {"BatchNormalization", R"({"center": false})", "center is false"},
                         {"GlobalAveragePooling2D", R"({"keepdims": true})", "keepdims"},
                         {"UpSampling2D", R"({"size": [2, 3]})", "2 x 3, nearest"},
                         {"UpSampling2D", R"({"size": 2, "interpolation": "area"})", "2 x 2, area"},
                         {"MaxPooling2D", R"({"pool_size": 2, "strides": 2, "padding": "causal"})", "padding causal"},
                         {"MaxPooling2D", R"({"data_format": "channels_first"})", "channels stand first"},
                         {"Concatenate", R"({"axis": 2})", "axis 2"},
                         {"Multiply", "{}", "it has other than two inputs"},
                         {"Reshape", R"({"target_shape": [48]})", "no shape of a graph"}}) {
    EXPECT_THAT(unsupported(tested.kind, tested.config), HasSubstr(": " + std::string(tested.problem)));
  }
  constexpr const char* kPlain = "padding, dilation, or a kernel smaller than the stride";
  EXPECT_THAT(transposed("[3, 1]", ""), HasSubstr(kPlain));
  EXPECT_THAT(transposed("[1, 4]", ""), HasSubstr(kPlain));
  EXPECT_THAT(transposed("[1, 1]", R"(, "dilation_rate": [1, 2])"), HasSubstr(kPlain));
  EXPECT_THAT(transposed("[1, 1]", R"(, "padding": "same")"), HasSubstr(kPlain));
  EXPECT_THAT(transposed("[1, 1]", R"(, "output_padding": [1, 1])"), HasSubstr(kPlain));
  const std::string early = layer_of("Softmax", "s", "{}", {"i"}) + "," + layer_of("Flatten", "f", "{}", {"s"}) + "," +
                            layer_of("Dense", "d", R"({"units": 2})", {"f"});
  EXPECT_THAT(refusal(config_of(early, "d"), core::ErrorCode::kUnsupported), HasSubstr("a softmax before the end"));
}

// "z: spatial_pad" of each node, in order.
std::vector<std::string> kinds_of(const Graph& graph) {
  std::vector<std::string> kinds;
  for (const Node& node : graph.nodes) kinds.push_back(node.name + ": " + std::string(node.kind()));
  return kinds;
}

// A layer is found by its name wherever the list has it.
TEST(KerasImport, LayersMayBeListedInAnyOrder) {
  const std::string end = layer_of("Activation", "end", R"({"activation": "tanh"})", {"middle"}),
                    begin = layer_of("Activation", "begin", R"({"activation": "relu"})", {"i"}),
                    middle = layer_of("GlobalAveragePooling2D", "middle", "{}", {"begin"});
  for (const std::string& layers : {end + "," + begin + "," + middle, end + "," + middle + "," + begin,
                                    middle + "," + end + "," + begin, begin + "," + middle + "," + end}) {
    EXPECT_THAT(
        kinds_of(model_of(layers, "end").graph),
        ::testing::ElementsAre("input: input", "begin: activation", "middle: global_average_pool", "end: activation"));
  }
}

// What is reshaped or permuted for a layer that graphs have is taken by that layer alone.
TEST(KerasImport, FormsThatNoLayerUndoesAreNamed) {
  const auto refused = [](const std::string& layers, const std::string& output) {
    return refusal(config_of(layers, output), core::ErrorCode::kUnsupported);
  };
  const std::string problem = "what it takes was reshaped, permuted or padded",
                    swapped = layer_of("Permute", "p", R"({"dims": [1, 3, 2]})", {"i"}),
                    rows = layer_of("Reshape", "r", R"({"target_shape": [4, 4, 3, 1]})", {"i"}),
                    columns = rows + "," + layer_of("Permute", "p", R"({"dims": [1, 2, 4, 3]})", {"r"}),
                    vector = layer_of("GlobalAveragePooling2D", "v", "{}", {"i"}),
                    scale = vector + "," + layer_of("Reshape", "s", R"({"target_shape": [1, 1, 3]})", {"v"});
  const auto pooled = [&](const std::string& layers, const std::string& from) {
    return refused(layers + "," + layer_of("GlobalAveragePooling2D", "g", "{}", {from}), "g");
  };
  for (const std::string& message : {pooled(swapped, "p"), pooled(rows, "r"), pooled(columns, "p")}) {
    EXPECT_THAT(message, ::testing::AllOf(HasSubstr(problem), HasSubstr("g (GlobalAveragePooling2D)")));
  }
  EXPECT_THAT(refused(scale + "," + layer_of("Add", "a", "{}", {"s", "s"}), "a"), HasSubstr(problem));
  EXPECT_THAT(refused(swapped, "p"), HasSubstr(problem)) << "as an output";

  const std::string permutation = "no permutation of a channel shuffle", shape = "no shape of a graph";
  EXPECT_THAT(refused(layer_of("Permute", "p", R"({"dims": [1, 2, 4, 3]})", {"i"}), "p"), HasSubstr(permutation));
  EXPECT_THAT(refused(scale + "," + layer_of("Permute", "p", R"({"dims": [1, 3, 2]})", {"s"}), "p"),
              HasSubstr(permutation));
  for (const char* const target : {"[4, 4, 2, 1]", "[4, 4, 0, 3]", "[4, 4, -1, 3]", "[5, 4, 3, 1]", "[4, 5, 3, 1]",
                                   "[4, 4, 3, 2]", "[1, 1, 3]", "[4, 4, 3]", "[16, 3]"}) {
    const std::string config = std::string(R"({"target_shape": )") + target + "}";
    EXPECT_THAT(refused(layer_of("Reshape", "r", config, {"i"}), "r"), HasSubstr(shape)) << target;
  }
  for (const char* const target : {"[1, 3, 1]", "[1, 1, 2]", "[3]"}) {
    const std::string config = std::string(R"({"target_shape": )") + target + "}";
    EXPECT_THAT(refused(vector + "," + layer_of("Reshape", "r", config, {"v"}), "r"), HasSubstr(shape)) << target;
  }
  EXPECT_THAT(refused(columns + "," + layer_of("Reshape", "q", R"({"target_shape": [4, 3, 4]})", {"p"}), "q"),
              HasSubstr(shape));
  for (const char* const border : {"[[1, 0], [0, 0]]", "[[0, 1], [0, 0]]"}) {
    const std::string config = std::string(R"({"padding": )") + border + "}";
    EXPECT_THAT(refused(swapped + "," + layer_of("ZeroPadding2D", "z", config, {"p"}), "z"),
                HasSubstr("rows and channels are changed at once"));
  }
}

// A convolution pads by itself where it alone reads what a layer of zeros gives, and pads nothing else.
TEST(KerasImport, PaddingIsThatOfTheOnlyConvolutionBehindIt) {
  using ::testing::ElementsAre;
  const std::string zeros = layer_of("ZeroPadding2D", "z", R"({"padding": [[1, 0], [3, 2]]})", {"i"});
  const auto convolution = [](const std::string& name, const std::string& more) {
    return layer_of("Conv2D", name,
                    R"({"filters": 2, "kernel_size": [3, 2], "strides": [1, 1], "dilation_rate": [1, 1])" + more + "}",
                    {"z"});
  };
  for (const char* const more : {"", R"(, "padding": "valid")"}) {
    const Graph one = model_of(zeros + "," + convolution("c", more), "c").graph;
    EXPECT_THAT(kinds_of(one), ElementsAre("input: input", "c: convolution"));
    EXPECT_EQ(one.node("c").description(), "2 x 3x2, pad 1+0x3+2, bias");
    EXPECT_EQ(one.output_shape(), (Shape{2, 3, 8}));
  }
  const Graph same = model_of(zeros + "," + convolution("c", R"(, "padding": "same")"), "c").graph;
  EXPECT_THAT(kinds_of(same), ElementsAre("input: input", "z: spatial_pad", "c: convolution"));
  EXPECT_EQ(same.output_shape(), (Shape{2, 5, 9}));
  const Graph two = model_of(zeros + "," + convolution("c", "") + "," + convolution("d", "") + "," +
                                 layer_of("Add", "a", "{}", {"c", "d"}),
                             "a")
                        .graph;
  EXPECT_THAT(kinds_of(two),
              ElementsAre("input: input", "z: spatial_pad", "d: convolution", "c: convolution", "a: add"));
  const Graph pool =
      model_of(zeros + "," + layer_of("MaxPooling2D", "m", R"({"pool_size": 2, "strides": [1, 3]})", {"z"}), "m").graph;
  EXPECT_THAT(kinds_of(pool), ElementsAre("input: input", "z: spatial_pad", "m: max_pool"));
  EXPECT_EQ(pool.node("m").description(), "2x2 / 1x3");
}

// Keras counts axes from the batch on, channels last.
TEST(KerasImport, AxesAreThoseOfChannels) {
  const std::string pools = layer_of("GlobalAveragePooling2D", "v", "{}", {"i"});
  const auto layers = [&](const std::string& kind, const std::string& axis, const std::string& from) {
    const std::vector<std::string> inputs =
        kind == "Concatenate" ? std::vector<std::string>{from, from} : std::vector<std::string>{from};
    return pools + "," + layer_of(kind, "l", R"({"axis": )" + axis + "}", inputs);
  };
  for (const char* const axis : {"-1", "3"}) {
    EXPECT_EQ(model_of(layers("Concatenate", axis, "i"), "l").graph.output_shape(), (Shape{6, 4, 4}));
  }
  for (const char* const axis : {"-1", "1"}) {
    EXPECT_EQ(model_of(layers("Concatenate", axis, "v"), "l").graph.output_shape(), Shape{6});
    EXPECT_EQ(model_of(layers("LayerNormalization", axis, "v"), "l").graph.output_shape(), Shape{3});
  }
  EXPECT_EQ(model_of(layers("LayerNormalization", "[3]", "i"), "l").graph.output_shape(), (Shape{3, 4, 4}));
  const auto refused = [&](const std::string& kind, const std::string& axis, const std::string& from) {
    return refusal(config_of(layers(kind, axis, from), "l"), core::ErrorCode::kUnsupported);
  };
  for (const char* const kind : {"Concatenate", "LayerNormalization"}) {
    EXPECT_THAT(refused(kind, "1", "i"), HasSubstr(": axis 1"));
    EXPECT_THAT(refused(kind, "3", "v"), HasSubstr(": axis 3"));
  }
}

// Activations that are part of a layer are nodes of their own, and a softmax at the end is none.
TEST(KerasImport, ActivationsOfLayersAreNodes) {
  using ::testing::ElementsAre;
  const auto dense = [](const std::string& activation) {
    return model_of(layer_of("GlobalAveragePooling2D", "p", "{}", {"i"}) + "," +
                        layer_of("Dense", "d", R"({"units": 2, "activation": ")" + activation + "\"}", {"p"}),
                    "d");
  };
  const KerasModel soft = dense("softmax"), plain = dense("linear"), tanh = dense("tanh");
  EXPECT_TRUE(soft.softmax);
  EXPECT_FALSE(plain.softmax);
  EXPECT_FALSE(tanh.softmax);
  for (const KerasModel& model : {soft, plain}) {
    EXPECT_THAT(kinds_of(model.graph), ElementsAre("input: input", "p: global_average_pool", "d: linear"));
    EXPECT_EQ(model.graph.node("d").description(), "2, bias");
    EXPECT_THAT(model.nodes, ElementsAre(2));
  }
  EXPECT_THAT(kinds_of(tanh.graph),
              ElementsAre("input: input", "p: global_average_pool", "d: linear", "d_tanh: activation"));
  EXPECT_THAT(tanh.nodes, ElementsAre(2));
  const std::string pool = layer_of("GlobalAveragePooling2D", "p", "{}", {"i"});
  const KerasModel last = model_of(pool + "," + layer_of("Softmax", "s", "{}", {"p"}), "s");
  EXPECT_TRUE(last.softmax);
  EXPECT_THAT(kinds_of(last.graph), ElementsAre("input: input", "p: global_average_pool"));
  EXPECT_TRUE(last.nodes.empty());
  const KerasModel linear =
      model_of(pool + "," + layer_of("Activation", "a", R"({"activation": "linear"})", {"p"}), "a");
  EXPECT_THAT(kinds_of(linear.graph), ElementsAre("input: input", "p: global_average_pool"));
  for (const char* const config : {"{}", R"({"max_value": null, "negative_slope": 0.0})"}) {
    const Graph relu = model_of(pool + "," + layer_of("ReLU", "r", config, {"p"}), "r").graph;
    EXPECT_EQ(relu.node("r").description(), "relu");
  }
}

TEST(KerasImport, InputsOfAnotherFormAreNamed) {
  const auto of_shape = [](const std::string& shape) {
    std::string config = config_of(layer_of("GlobalAveragePooling2D", "p", "{}", {"i"}), "p");
    const std::string whole = "[null, 4, 4, 3]";
    return config.replace(config.find(whole), whole.size(), shape);
  };
  EXPECT_EQ(model_of(of_shape("[null, 4, 6, 3]")).graph.input_shape(), (Shape{3, 4, 6}));
  EXPECT_THAT(refusal(of_shape("[null, 4, null, 3]")), HasSubstr("its images have no fixed size: [null,4,null,3]"));
  EXPECT_THAT(refusal(of_shape("[null, 0, 4, 3]")), HasSubstr("its images have no fixed size: [null,0,4,3]"));
  EXPECT_THAT(refusal(of_shape("[null, 48]")), HasSubstr("its input is no image [H, W, C]: [null,48]"));
  const std::string second = R"({"class_name": "InputLayer", "name": "j", "inbound_nodes": [], "config": {}},)";
  const std::string sum = layer_of("Add", "a", "{}", {"i", "j"});
  EXPECT_THAT(refusal(config_of(second + sum, "a")), HasSubstr("it has several inputs"));
}

TEST(KerasImport, AFileOfWeightsAloneHoldsNoModel) {
  const core::TempDir temp;
  formats::write_hdf5(temp.file("m.h5"), {.attributes = {{"backend", "tensorflow"}}});
  EXPECT_EQ(
      core::message_of([&] { read_keras_model(formats::Hdf5File(temp.file("m.h5"))); }, core::ErrorCode::kCorruptData),
      "the file holds no model of Keras, or its weights alone: " + temp.file("m.h5") +
          ": expected an attribute model_config");
}

// They are intact, and what Keras 3 writes by default.
TEST(KerasImport, ArchivesOfKeras3AreNamed) {
  const core::TempDir temp;
  core::local_file_system().write_file_atomically(temp.file("m.keras"), "PK\x03\x04 and the rest");
  const auto open = [&] { const formats::Hdf5File file(temp.file("m.keras")); };
  EXPECT_EQ(core::message_of(open, core::ErrorCode::kUnsupported),
            "a zip archive, as Keras 3 writes under names in .keras, is not read: " + temp.file("m.keras") +
                ": expected HDF5; load it in Keras and save it as HDF5: model.save(\"model.h5\")");
}

TEST(KerasImport, ConfigsThatCannotBeUsedAreNamed) {
  EXPECT_THAT(refusal("{"), HasSubstr("m.h5"));
  EXPECT_THAT(refusal("[]"), HasSubstr("cannot be used"));
  EXPECT_THAT(refusal(R"({"class_name": "Sequential", "config": {}})", core::ErrorCode::kUnsupported),
              HasSubstr("Sequential"));
  const std::string strange =
      R"({"class_name": "Attention", "name": "a", "config": {}, "inbound_nodes": [[["i", 0, 0, {}]]]})";
  EXPECT_THAT(refusal(config_of(strange, "a"), core::ErrorCode::kUnsupported),
              ::testing::AllOf(HasSubstr("m.h5"), HasSubstr("a (Attention)")));
  EXPECT_THAT(refusal(config_of(strange, "gone")), HasSubstr("gone"));
  EXPECT_THAT(refusal(config_of(strange + "," + strange, "a")), HasSubstr("one name"));
  const std::string loop = R"({"class_name": "Add", "name": "a", "config": {}, "inbound_nodes": [[["b", 0, 0, {}]]]},
                              {"class_name": "Add", "name": "b", "config": {}, "inbound_nodes": [[["a", 0, 0, {}]]]})";
  EXPECT_THAT(refusal(config_of(loop, "a")), HasSubstr("feed each other"));
  const std::string without = R"({"class_name": "Dense", "name": "d", "config": {}, "inbound_nodes": []})";
  EXPECT_THAT(refusal(config_of(without, "d")), HasSubstr("it has no input"));
  const std::string unfed = without + "," + layer_of("Add", "a", "{}", {"i", "d"});
  EXPECT_THAT(refusal(config_of(unfed, "a")), ::testing::AllOf(HasSubstr("a layer has no input"), HasSubstr("m.h5")));
  const std::string twice = R"({"class_name": "Flatten", "name": "f", "config": {},
                              "inbound_nodes": [[["i", 0, 0, {}]], [["i", 0, 0, {}]]]})";
  EXPECT_THAT(refusal(config_of(twice, "f")), HasSubstr("a layer is used several times"));
  std::string both = config_of(layer_of("GlobalAveragePooling2D", "p", "{}", {"i"}), "p");
  const std::string one = R"(["p", 0, 0])";
  both.replace(both.find(one), one.size(), "[" + one + ", " + one + "]");
  EXPECT_THAT(refusal(both), HasSubstr("2 outputs instead of one"));
  const std::string permuted =
      R"({"class_name": "Permute", "name": "p", "config": {"dims": [2, 1, 3]}, "inbound_nodes": [[["i", 0, 0, {}]]]})";
  EXPECT_THAT(refusal(config_of(permuted, "p"), core::ErrorCode::kUnsupported), HasSubstr("p (Permute)"));
  EXPECT_THAT(unsupported("Activation", R"({"activation": "hard_sigmoid"})"), HasSubstr("hard_sigmoid of Keras 2"));
  EXPECT_THAT(unsupported("Dropout", R"({"rate": 0.5, "noise_shape": [null, 1, 1, 3]})"), HasSubstr("noise_shape"));
  EXPECT_THAT(unsupported("LayerNormalization", R"({"axis": [1]})"), HasSubstr("axis 1"));
  for (const char* const part : {R"("center": false)", R"("scale": false)", R"("rms_scaling": true)"}) {
    EXPECT_THAT(unsupported("LayerNormalization", "{" + std::string(part) + "}"), HasSubstr("l (LayerNormalization)"));
  }
  EXPECT_THAT(unsupported("Flatten", "{}"), HasSubstr("l (Flatten)"));
}

}  // namespace
}  // namespace trainyard::nn::keras_import_test
