// What to_keras_model() writes; tests/program_test.py opens whole models in Keras.
#include "trainyard/nn/export/keras_model.h"

#include <string>
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

}  // namespace
}  // namespace trainyard::nn::keras_model_test
