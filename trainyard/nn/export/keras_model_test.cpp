// What to_keras_model() writes; tests/program_test.py opens whole models in Keras.
#include "trainyard/nn/export/keras_model.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::keras_model_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Value = GraphBuilder::Value;

ParameterSet set_of(const Graph& graph) {
  ParameterSet set;
  make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(1);
  return set;
}

// The written model's config.
nlohmann::json written_config(const Graph& graph, const KerasModelOptions& options = {}) {
  const ParameterSet set = set_of(graph);
  const formats::Hdf5Group root = to_keras_model(graph, set, options);
  for (const auto& [name, value] : root.attributes) {
    if (name == "model_config") return nlohmann::json::parse(std::get<std::string>(value)).at("config");
  }
  return {};
}

nlohmann::json layer_of(const nlohmann::json& config, const std::string& name) {
  for (const nlohmann::json& layer : config.at("layers")) {
    if (layer.at("name") == name) return layer;
  }
  return {};
}

TEST(KerasModel, PaddingIsSameWhereTensorFlowsIsAndALayerElsewhere) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "padded"});
  Value x = b.convolution("odd", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("relu", x);
  x = b.convolution("strided", x, {.out_channels = 4, .kernel = 3, .stride = 2, .padding = Padding::all(1)});
  const nlohmann::json config = written_config(b.build(b.global_average_pool("pool", x)), {.softmax = true});
  EXPECT_EQ(layer_of(config, "odd")["config"]["padding"], "same");
  EXPECT_EQ(layer_of(config, "strided")["config"]["padding"], "valid");
  EXPECT_EQ(layer_of(config, "strided_pad")["config"]["padding"], nlohmann::json::parse("[[1, 1], [1, 1]]"));
  EXPECT_EQ(layer_of(config, "strided")["inbound_nodes"], nlohmann::json::parse(R"([[["strided_pad", 0, 0, {}]]])"));
  EXPECT_EQ(config["output_layers"], nlohmann::json::parse(R"(["softmax", 0, 0])"));
  EXPECT_EQ(layer_of(config, "input")["config"]["batch_input_shape"], nlohmann::json::parse("[null, 8, 8, 3]"));
}

// A layer of padding makes its branch longer, which moves the layers behind it in Keras' order.
TEST(KerasModel, WeightsStandInTheOrderOfItsOwnLayers) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "branches"});
  const Convolution halved{.out_channels = 4, .kernel = 2, .stride = 2};
  const Padding before{.top = 2, .left = 2};
  const Value left = b.convolution("left2", b.convolution("left1", b.input(), halved), {.out_channels = 4});
  const Value right = b.convolution("right2", b.convolution("right1", b.input(), halved),
                                    {.out_channels = 4, .kernel = 3, .padding = before});
  const Graph graph = b.build(b.global_average_pool("pool", b.add("add", {left, right})));
  const ParameterSet set = set_of(graph);
  const formats::Hdf5Group root = to_keras_model(graph, set);
  ASSERT_EQ(root.groups.size(), 1u);
  EXPECT_EQ(root.groups[0].name, "model_weights");
  std::vector<std::string> names;
  for (const formats::Hdf5Group& layer : root.groups[0].groups) names.push_back(layer.name);
  EXPECT_THAT(names, ElementsAre("right1", "left1", "left2", "right2"));
}

// Keras' PyTorch backend refuses a '.' in names, and a '/' is a part of a path everywhere. What then would be the same
// name is told apart, and groups of weights have the layers' names, so that they load by name, too.
TEST(KerasModel, NamesAreThoseThatEveryBackendTakes) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "resnet50_v1.5/small"});
  Value x = b.convolution("layer1.0.conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::all(1)});
  x = b.convolution("layer1_0_conv", x, {.out_channels = 4});
  x = b.batch_norm("layer1.0/conv", x);
  const Graph graph = b.build(b.global_average_pool("pool", x));
  const ParameterSet set = set_of(graph);
  const formats::Hdf5Group root = to_keras_model(graph, set);
  const nlohmann::json config = written_config(graph);
  EXPECT_EQ(config["name"], "resnet50_v1_5_small");
  std::vector<std::string> layers;
  for (const nlohmann::json& layer : config.at("layers")) {
    layers.push_back(layer.at("name"));
    EXPECT_EQ(layer.at("name"), layer.at("config").at("name"));
  }
  EXPECT_THAT(layers, ElementsAre("input", "layer1_0_conv", "layer1_0_conv_", "layer1_0_conv__", "pool"));
  ASSERT_EQ(root.groups.size(), 1u);
  std::vector<std::string> groups;
  for (const formats::Hdf5Group& layer : root.groups[0].groups) {
    groups.push_back(layer.name);
    for (const auto& dataset : layer.datasets) EXPECT_TRUE(dataset.name.starts_with(layer.name + "/")) << dataset.name;
  }
  EXPECT_THAT(groups, ElementsAre("layer1_0_conv", "layer1_0_conv_", "layer1_0_conv__"));
}

TEST(KerasModel, AMaximumOfNumbersFromZeroUpIsPaddedByALayer) {
  GraphBuilder b({.image = {4, 6, 6}, .name = "padded"});
  const Value x =
      b.max_pool("max", b.activation("relu", b.input()), {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  const nlohmann::json config = written_config(b.build(b.global_average_pool("pool", x)));
  EXPECT_EQ(layer_of(config, "max")["inbound_nodes"][0][0][0], "max_pad");
  // The last row and column of padding are beyond the windows.
  EXPECT_EQ(layer_of(config, "max_pad")["config"]["padding"], nlohmann::json::parse("[[1, 0], [1, 0]]"));
}

// The elements of an image count channels first here, and last in Keras, unless the image has one pixel or one channel.
TEST(KerasModel, OutputsThatAreAFlattenedImageAreRefused) {
  const auto graph_of = [](const Shape& image, int64_t channels) {
    GraphBuilder b({.image = image, .name = "flat"});
    const Value x = b.convolution("conv", b.input(), {.out_channels = channels});
    return b.build(b.activation("relu", b.flatten("flatten", x)));
  };
  const Graph pixels = graph_of({3, 2, 2}, 2), pixel = graph_of({3, 1, 1}, 2), channel = graph_of({3, 2, 2}, 1);
  const ParameterSet of_pixels = set_of(pixels), of_pixel = set_of(pixel), of_channel = set_of(channel);
  EXPECT_THAT(core::message_of([&] { (void)to_keras_model(pixels, of_pixels); }, core::ErrorCode::kUnsupported),
              HasSubstr("flatten of flat"));
  EXPECT_NO_THROW((void)to_keras_model(pixel, of_pixel));
  EXPECT_NO_THROW((void)to_keras_model(channel, of_channel));
}

TEST(KerasModel, FactorsOfChannelsThatAreAFlattenedImageAreRefused) {
  const auto graph_of = [](int64_t channels, int64_t pixels) {
    GraphBuilder b({.image = {3, 4, 4}, .name = "scaled"});
    const Value x = b.convolution("conv", b.input(), {.out_channels = 8});
    const Value gate = b.convolution("gate", b.input(), {.out_channels = channels});
    const Value y = b.adaptive_average_pool("pool", gate, {pixels, pixels});
    return b.build(b.multiply("multiply", x, b.activation("relu", b.flatten("flatten", y))));
  };
  const Graph pixels = graph_of(2, 2), pixel = graph_of(8, 1);
  const ParameterSet of_pixels = set_of(pixels), of_pixel = set_of(pixel);
  EXPECT_THAT(core::message_of([&] { (void)to_keras_model(pixels, of_pixels); }, core::ErrorCode::kUnsupported),
              HasSubstr("multiply"));
  EXPECT_NO_THROW((void)to_keras_model(pixel, of_pixel));
}

// The layer's class, and those of its options that are in `options`.
void expect_layer(const nlohmann::json& config, const std::string& name, const std::string& class_name,
                  const std::string& options) {
  SCOPED_TRACE(name);
  const nlohmann::json layer = layer_of(config, name);
  ASSERT_TRUE(layer.is_object());
  EXPECT_EQ(layer.at("class_name").get<std::string>(), class_name);
  const nlohmann::json wanted = nlohmann::json::parse(options);
  for (const auto& [option, value] : wanted.items()) EXPECT_EQ(layer.at("config").at(option), value) << option;
}

TEST(KerasModel, LayersHaveTheOptionsOfTheirNodes) {
  GraphBuilder b({.image = {4, 10, 6}, .name = "options"});
  Value x = b.convolution(
      "conv", b.input(),
      {.out_channels = 8, .kernel = {3, 5}, .padding = Padding::symmetric(1, 2), .groups = 2, .bias = true});
  x = b.batch_norm("norm", x, {.epsilon = 0.25, .decay = 0.5, .scale = false});
  x = b.convolution("depthwise", x, {.out_channels = 16, .kernel = {2, 1}, .stride = {2, 1}, .groups = 8});
  x = b.convolution("dilated", x, {.out_channels = 8, .kernel = {2, 3}, .dilation = {2, 1}});
  x = b.layer_norm("layer_norm", x, {.epsilon = 0.125});
  x = b.average_pool("mean", x, {.kernel = {3, 2}, .stride = {1, 2}});
  x = b.upsample("up", x, {.kind = Upsample::Kind::kBilinear, .factor = 3});
  x = b.transposed_convolution("transposed", x, {.out_channels = 6, .kernel = {3, 2}, .stride = {2, 1}});
  x = b.spatial_pad("border", x, {.top = 1, .bottom = -2, .left = 0, .right = 4});
  x = b.channel_slice("slice", b.channel_pad("pad", x, {.before = 1, .after = 4}), {.begin = 2, .count = 6});
  x = b.channel_shuffle("shuffle", x, 3);
  x = b.adaptive_average_pool("grid", x, {3, 1});
  x = b.dropout("dropout", b.stochastic_depth("depth", x, 0.125), 0.25);
  x = b.linear("fc", b.global_average_pool("pool", x), {.out_features = 3, .bias = false});
  const Graph graph = b.build(x);
  ASSERT_EQ(graph.node("transposed").shape, (Shape{6, 7, 7}));
  ASSERT_EQ(graph.node("border").shape, (Shape{6, 6, 11}));
  const nlohmann::json config = written_config(graph);
  expect_layer(config, "conv", "Conv2D",
               R"({"filters": 8, "kernel_size": [3, 5], "strides": [1, 1], "padding": "same", "dilation_rate": [1, 1],
                   "groups": 2, "use_bias": true, "data_format": "channels_last"})");
  expect_layer(config, "norm", "BatchNormalization",
               R"({"axis": -1, "momentum": 0.5, "epsilon": 0.25, "center": true, "scale": false})");
  expect_layer(config, "depthwise", "DepthwiseConv2D",
               R"({"depth_multiplier": 2, "kernel_size": [2, 1], "strides": [2, 1], "padding": "same",
                   "use_bias": false})");
  EXPECT_FALSE(layer_of(config, "depthwise")["config"].contains("filters"));
  expect_layer(config, "dilated", "Conv2D", R"({"kernel_size": [2, 3], "dilation_rate": [2, 1], "strides": [1, 1]})");
  expect_layer(config, "layer_norm", "LayerNormalization",
               R"({"axis": -1, "epsilon": 0.125, "center": true, "scale": true})");
  expect_layer(config, "mean", "AveragePooling2D", R"({"pool_size": [3, 2], "strides": [1, 2], "padding": "valid"})");
  expect_layer(config, "up", "UpSampling2D", R"({"size": [3, 3], "interpolation": "bilinear"})");
  expect_layer(config, "transposed", "Conv2DTranspose",
               R"({"filters": 6, "kernel_size": [3, 2], "strides": [2, 1], "padding": "valid", "use_bias": false})");
  expect_layer(config, "border_crop", "Cropping2D", R"({"cropping": [[0, 2], [0, 0]]})");
  expect_layer(config, "border", "ZeroPadding2D", R"({"padding": [[1, 0], [0, 4]]})");
  expect_layer(config, "pad_pad", "ZeroPadding2D", R"({"padding": [[0, 0], [1, 4]]})");
  expect_layer(config, "slice_crop", "Cropping2D", R"({"cropping": [[0, 0], [2, 3]]})");
  expect_layer(config, "shuffle_rows", "Reshape", R"({"target_shape": [6, 11, 3, 2]})");
  expect_layer(config, "shuffle_columns", "Permute", R"({"dims": [1, 2, 4, 3]})");
  expect_layer(config, "shuffle", "Reshape", R"({"target_shape": [6, 11, 6]})");
  expect_layer(config, "grid", "AveragePooling2D", R"({"pool_size": [2, 11], "strides": [2, 11]})");
  expect_layer(config, "depth", "Dropout", R"({"rate": 0.125, "noise_shape": [null, 1, 1, 1]})");
  expect_layer(config, "dropout", "Dropout", R"({"rate": 0.25, "noise_shape": null})");
  expect_layer(config, "fc", "Dense", R"({"units": 3, "use_bias": false, "trainable": true, "dtype": "float32"})");
  EXPECT_FALSE(layer_of(config, "input")["config"].contains("trainable"));
  EXPECT_EQ(config["input_layers"], nlohmann::json::parse(R"(["input", 0, 0])"));
  EXPECT_EQ(config["output_layers"], nlohmann::json::parse(R"(["fc", 0, 0])"));
}

TEST(KerasModel, FunctionsHaveKerasNames) {
  using Function = Activation::Function;
  const std::vector<std::pair<Function, std::string>> functions = {
      {Function::kRelu, "relu"},       {Function::kSilu, "swish"}, {Function::kHardSwish, "hard_swish"},
      {Function::kSigmoid, "sigmoid"}, {Function::kGelu, "gelu"},  {Function::kHardSigmoid, "hard_sigmoid"},
      {Function::kTanh, "tanh"}};
  GraphBuilder b({.image = {4}, .name = "functions"});
  Value x = b.input();
  for (const auto& [function, name] : functions) x = b.activation(name, x, function);
  const nlohmann::json config = written_config(b.build(b.activation("relu6", x, Function::kRelu6)));
  for (const auto& [function, name] : functions) {
    expect_layer(config, name, "Activation", R"({"activation": ")" + name + "\"}");
  }
  expect_layer(config, "relu6", "ReLU", R"({"max_value": 6.0, "negative_slope": 0.0, "threshold": 0.0})");
}

TEST(KerasModel, WhatHasNoCounterpartIsRefusedByName) {
  const auto message = [](const auto& make) {
    GraphBuilder b({.image = {4, 6, 6}, .name = "odd"});
    const Graph graph = b.build(b.global_average_pool("pool", make(b)));
    const ParameterSet set = set_of(graph);
    return core::message_of([&] { to_keras_model(graph, set); }, core::ErrorCode::kUnsupported);
  };
  EXPECT_THAT(message([](GraphBuilder& b) { return b.local_response_norm("lrn", b.input(), {}); }), HasSubstr("lrn"));
  // A maximum at the border of numbers that may all be negative.
  EXPECT_THAT(message([](GraphBuilder& b) {
                return b.max_pool("max", b.input(), {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
              }),
              HasSubstr("max"));
  EXPECT_THAT(message([](GraphBuilder& b) {
                return b.average_pool("mean", b.input(), {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
              }),
              HasSubstr("mean"));
}

// Options that Keras' layers lack, each by itself, in the direction that has it.
TEST(KerasModel, OptionsWithoutACounterpartAreNamed) {
  const auto message = [](const auto& make) {
    GraphBuilder b({.image = {4, 6, 6}, .name = "odd"});
    const Graph graph = b.build(b.global_average_pool("pool", make(b)));
    const ParameterSet set = set_of(graph);
    return core::message_of([&] { (void)to_keras_model(graph, set); }, core::ErrorCode::kUnsupported);
  };
  const std::string begin = "a layer cannot be written as a model of Keras: ",
                    end = "; write its weights alone, or ONNX";
  const auto transposed = [&](const TransposedConvolution& op) {
    return message([&](GraphBuilder& b) { return b.transposed_convolution("t", b.input(), op); });
  };
  EXPECT_EQ(transposed({.out_channels = 4, .kernel = 2, .stride = 2}), "no error");
  EXPECT_EQ(transposed({.out_channels = 4, .kernel = 2, .stride = 2, .padding = {1, 0}}),
            begin +
                "Keras has transposed convolutions without groups, padding and dilation, of kernels as large as the "
                "stride: t (4 x 2x2 / 2, pad 1x0)" +
                end);
  for (const TransposedConvolution& op :
       {TransposedConvolution{.out_channels = 4, .kernel = 2, .groups = 2},
        TransposedConvolution{.out_channels = 4, .kernel = 2, .padding = {0, 1}},
        TransposedConvolution{.out_channels = 4, .kernel = 2, .dilation = {2, 1}},
        TransposedConvolution{.out_channels = 4, .kernel = 2, .dilation = {1, 2}},
        TransposedConvolution{.out_channels = 4, .kernel = 2, .stride = 2, .output_padding = {1, 0}},
        TransposedConvolution{.out_channels = 4, .kernel = 2, .stride = 2, .output_padding = {0, 1}},
        TransposedConvolution{.out_channels = 4, .kernel = {1, 2}, .stride = 2},
        TransposedConvolution{.out_channels = 4, .kernel = {2, 1}, .stride = 2}}) {
    EXPECT_THAT(transposed(op), HasSubstr("as large as the stride: t (4 x "));
  }
  const auto convolution = [&](Size2d stride, Size2d dilation) {
    return message([&](GraphBuilder& b) {
      return b.convolution("c", b.input(), {.out_channels = 2, .kernel = 2, .stride = stride, .dilation = dilation});
    });
  };
  EXPECT_EQ(convolution({1, 2}, {2, 1}),
            begin + "Keras has no stride beside a dilation: c (2 x 2x2 / 1x2, dilation 2x1)" + end);
  EXPECT_EQ(convolution(2, 1), "no error");
  EXPECT_EQ(convolution(1, 2), "no error");
  const auto averaged = [&](Size2d size) {
    return message([&](GraphBuilder& b) { return b.adaptive_average_pool("a", b.input(), size); });
  };
  const std::string windows = "Keras averages windows of one size only, and [4, 6, 6] does not divide into ";
  EXPECT_EQ(averaged({2, 3}), "no error");
  EXPECT_EQ(averaged({4, 3}), begin + windows + "4 x 3: a (to 4x3)" + end);
  EXPECT_EQ(averaged({3, 4}), begin + windows + "3 x 4: a (to 3x4)" + end);
}

// Pools on numbers that may be negative: TensorFlow's padding is "same", padding that no window reaches is none, and
// zeros that a mean counts are a layer in front.
TEST(KerasModel, PoolsArePaddedAsKerasPads) {
  constexpr auto kMax = Pool::Kind::kMax, kAverage = Pool::Kind::kAverage;
  const auto graph_of = [](const Pool& op, const Shape& image) {
    GraphBuilder b({.image = image, .name = "pool"});
    const Value x = op.kind == Pool::Kind::kMax ? b.max_pool("p", b.input(), op) : b.average_pool("p", b.input(), op);
    return b.build(b.global_average_pool("end", x));
  };
  // "same" or "valid", behind "[[1,1],[0,0]] " where a layer pads in front.
  const auto padding_of = [&](const Pool& op, const Shape& image) {
    const nlohmann::json config = written_config(graph_of(op, image));
    const nlohmann::json pad = layer_of(config, "p_pad"), pool = layer_of(config, "p").at("config");
    EXPECT_EQ(config.at("layers").size(), pad.is_null() ? 3U : 4U);
    return (pad.is_null() ? "" : pad.at("config").at("padding").dump() + " ") + pool.at("padding").get<std::string>();
  };
  const Padding behind{.bottom = 1, .right = 1};
  for (const auto kind : {kMax, kAverage}) {
    SCOPED_TRACE(static_cast<int>(kind));
    EXPECT_EQ(padding_of({.kind = kind, .kernel = 3, .stride = 2, .padding = Padding::same()}, {2, 6, 5}), "same");
    EXPECT_EQ(padding_of({.kind = kind, .kernel = 3, .stride = 1, .padding = Padding::all(1)}, {2, 6, 5}), "same");
    EXPECT_EQ(padding_of({.kind = kind, .kernel = 2, .stride = 2, .ceil_mode = true}, {2, 5, 7}), "same");
    EXPECT_EQ(padding_of({.kind = kind, .kernel = 2, .stride = 2, .padding = behind}, {2, 6, 8}), "valid");
    EXPECT_EQ(padding_of({.kind = kind, .kernel = 2, .stride = 3, .ceil_mode = true}, {2, 5, 8}), "valid");
  }
  const Padding rows{.top = 1, .bottom = 1}, columns{.left = 1, .right = 1};
  EXPECT_EQ(padding_of({.kind = kAverage, .kernel = 3, .stride = 2, .padding = rows, .count_padding = true}, {2, 7, 7}),
            "[[1,1],[0,0]] valid");
  EXPECT_EQ(
      padding_of({.kind = kAverage, .kernel = 3, .stride = 2, .padding = columns, .count_padding = true}, {2, 7, 7}),
      "[[0,0],[1,1]] valid");
  const Padding all = Padding::all(1);  // as TensorFlow's, whose means leave it out
  EXPECT_EQ(padding_of({.kind = kAverage, .kernel = 3, .stride = 2, .padding = all, .count_padding = true}, {2, 7, 7}),
            "[[1,1],[1,1]] valid");
  // A mean of fewer numbers at the lower or the right edge, of which each window counts its own.
  const auto refused = [&](const Pool& op, const Shape& image) {
    const Graph graph = graph_of(op, image);
    const ParameterSet set = set_of(graph);
    return core::message_of([&] { (void)to_keras_model(graph, set); }, core::ErrorCode::kUnsupported);
  };
  for (const Shape& image : {Shape{2, 5, 6}, Shape{2, 6, 5}}) {
    EXPECT_THAT(
        refused({.kind = kAverage, .kernel = 2, .stride = 2, .ceil_mode = true, .count_padding = true}, image),
        HasSubstr("Keras averages windows at the border as TensorFlow does only: p (2x2 / 2, ceil, padding counted)"));
  }
  EXPECT_THAT(refused({.kind = kMax, .kernel = 3, .stride = 2, .padding = rows}, {2, 7, 7}),
              HasSubstr("Keras pads a maximum of numbers that may be negative as TensorFlow does only"));
}

TEST(KerasModel, ListsAllInputs) {
  GraphBuilder b({.image = {3, 4, 2}, .name = "two"});
  const Value sum = b.add("sum", {b.input(), b.input("depth", {3, 4, 2})});
  const Value vector = b.stochastic_depth("drop", b.global_average_pool("pool", sum), 0.5);
  const nlohmann::json config = written_config(b.build(vector));
  EXPECT_EQ(config["input_layers"], nlohmann::json::parse(R"([["input", 0, 0], ["depth", 0, 0]])"));
  EXPECT_EQ(config["output_layers"], nlohmann::json::parse(R"(["drop", 0, 0])"));
  EXPECT_EQ(layer_of(config, "sum")["inbound_nodes"],
            nlohmann::json::parse(R"([[["input", 0, 0, {}], ["depth", 0, 0, {}]]])"));
  EXPECT_EQ(layer_of(config, "depth")["config"]["batch_input_shape"], nlohmann::json::parse("[null, 4, 2, 3]"));
  EXPECT_EQ(layer_of(config, "drop")["config"]["noise_shape"], nlohmann::json::parse("[null, 1]"));
}

// Zeros around numbers of 0 or more change no maximum.
TEST(KerasModel, AMaximumIsPaddedWhereNoNumberCanBeNegative) {
  using Function = Activation::Function;
  const auto message = [](const auto& front) {
    GraphBuilder b({.image = {4, 6, 6}, .name = "padded"});
    const Value x = front(b, b.activation("relu", b.input()));
    const Value y = b.max_pool("max", x, {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
    const Graph graph = b.build(b.global_average_pool("end", y));
    const ParameterSet set = set_of(graph);
    return core::message_of([&] { (void)to_keras_model(graph, set); }, core::ErrorCode::kUnsupported);
  };
  EXPECT_EQ(message([](GraphBuilder& b, Value x) { return b.add("sum", {x, x}); }), "no error");
  EXPECT_EQ(message([](GraphBuilder& b, Value x) { return b.concat("both", {x, b.dropout("drop", x)}); }), "no error");
  EXPECT_EQ(message([](GraphBuilder& b, Value x) {
              return b.channel_slice("slice", b.channel_shuffle("shuffle", x, 2), {.begin = 1, .count = 2});
            }),
            "no error");
  EXPECT_EQ(message([](GraphBuilder& b, Value x) { return b.average_pool("mean", x, {.kernel = 1}); }), "no error");
  for (const Function function : {Function::kRelu, Function::kRelu6, Function::kSigmoid, Function::kHardSigmoid}) {
    EXPECT_EQ(message([&](GraphBuilder& b, Value x) { return b.activation("act", x, function); }), "no error");
  }
  const std::string refused = "Keras pads a maximum of numbers that may be negative as TensorFlow does only";
  for (const Function function : {Function::kSilu, Function::kHardSwish, Function::kGelu, Function::kTanh}) {
    EXPECT_THAT(message([&](GraphBuilder& b, Value x) { return b.activation("act", x, function); }),
                HasSubstr(refused));
  }
  EXPECT_THAT(message([](GraphBuilder& b, Value x) { return b.batch_norm("norm", x); }), HasSubstr(refused));
  EXPECT_THAT(message([](GraphBuilder& b, Value x) {
                return b.add("sum", {x, b.convolution("conv", x, {.out_channels = 4})});
              }),
              HasSubstr(refused));
  EXPECT_THAT(message([](GraphBuilder& b, Value x) {
                return b.concat("both", {b.activation("tanh", x, Function::kTanh), x});
              }),
              HasSubstr(refused));
}

// Attributes of the file and of the group of weights, and what surrounds the config.
TEST(KerasModel, TheFileHasTheAttributesThatKerasReads) {
  GraphBuilder b({.image = {3, 2, 2}, .name = "small"});
  Graph graph = b.build(b.global_average_pool("pool", b.convolution("conv", b.input(), {.out_channels = 2})));
  graph.name.clear();
  const ParameterSet set = set_of(graph);
  const formats::Hdf5Group root = to_keras_model(graph, set);
  const auto names_of = [](const formats::Hdf5Group& group) {
    std::vector<std::string> names;
    for (const auto& [name, value] : group.attributes) names.push_back(name);
    return names;
  };
  EXPECT_THAT(names_of(root), ElementsAre("backend", "keras_version", "model_config"));
  EXPECT_EQ(std::get<std::string>(root.attributes[0].second), "tensorflow");
  EXPECT_EQ(std::get<std::string>(root.attributes[1].second), "3.0.0");
  const nlohmann::json whole = nlohmann::json::parse(std::get<std::string>(root.attributes[2].second));
  EXPECT_EQ(whole.at("class_name"), "Functional");
  EXPECT_EQ(whole.at("config").at("name"), "model") << "the graph has no name";
  EXPECT_EQ(whole.at("config").at("trainable"), true);
  EXPECT_EQ(layer_of(whole.at("config"), "input")["inbound_nodes"], nlohmann::json::array());
  ASSERT_EQ(root.groups.size(), 1u);
  EXPECT_THAT(names_of(root.groups[0]), ElementsAre("layer_names", "backend", "keras_version"));
  EXPECT_EQ(std::get<std::vector<std::string>>(root.groups[0].attributes[0].second), std::vector<std::string>{"conv"});
}

}  // namespace
}  // namespace trainyard::nn::keras_model_test
