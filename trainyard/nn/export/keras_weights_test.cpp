#include "trainyard/nn/export/keras_weights.h"

#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/testing/opaque_layer.h"

namespace trainyard::nn::keras_weights_test {
namespace {

using Value = GraphBuilder::Value;

// Each parameter and statistic counts from 0 in its own order.
ParameterSet counting_set(const Graph& graph) {
  ParameterSet set;
  make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  const auto count = [](const at::Tensor& tensor) {
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data_ptr<float>()[i] = static_cast<float>(i);
  };
  for (const Segment& segment : set.segments()) count(set.value(segment.id));
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) count(set.buffer(i));
  return set;
}

std::vector<std::string> texts_of(const formats::Hdf5Group& group, const std::string& name) {
  for (const auto& [key, value] : group.attributes) {
    if (key == name) return std::get<std::vector<std::string>>(value);
  }
  return {};
}

const formats::Hdf5Dataset& dataset_of(const formats::Hdf5Group& root, const std::string& layer, size_t index) {
  for (const formats::Hdf5Group& group : root.groups) {
    if (group.name == layer) return group.datasets.at(index);
  }
  throw core::Error(core::ErrorCode::kNotFound, "no layer " + layer);
}

// The nodes with weights, in Keras' order.
std::vector<int> weighted_nodes(const Graph& graph) {
  std::vector<int> nodes;
  for (const int id : keras_order(graph)) {
    if (!graph.nodes[static_cast<size_t>(id)].parameters.empty()) nodes.push_back(id);
  }
  return nodes;
}

// The first block of Keras' ResNet50, whose layers Keras 3.15 lists as expected below.
TEST(KerasWeights, LayersStandInKerasOrder) {
  GraphBuilder b({.image = {8, 4, 4}, .name = "block"});
  Value past = b.batch_norm("0_bn", b.convolution("0_conv", b.input(), {.out_channels = 8}));
  Value x = b.activation("1_relu", b.batch_norm("1_bn", b.convolution("1_conv", b.input(), {.out_channels = 2})));
  x = b.activation("2_relu", b.batch_norm("2_bn", b.convolution("2_conv", x, {.out_channels = 2})));
  x = b.batch_norm("3_bn", b.convolution("3_conv", x, {.out_channels = 8}));
  x = b.activation("out", b.add("add", {past, x}));
  const Graph graph = b.build(b.linear("predictions", b.global_average_pool("avg_pool", x), {.out_features = 3}));
  std::vector<std::string> order;
  for (const int id : keras_order(graph)) order.push_back(graph.nodes[static_cast<size_t>(id)].name);
  EXPECT_EQ(order, (std::vector<std::string>{"input", "1_conv", "1_bn", "1_relu", "2_conv", "2_bn", "2_relu", "0_conv",
                                             "3_conv", "0_bn", "3_bn", "add", "out", "avg_pool", "predictions"}));
  const ParameterSet set = counting_set(graph);
  const formats::Hdf5Group root = to_keras(graph, set);
  EXPECT_EQ(texts_of(root, "layer_names"), (std::vector<std::string>{"1_conv", "1_bn", "2_conv", "2_bn", "0_conv",
                                                                     "3_conv", "0_bn", "3_bn", "predictions"}));
  EXPECT_EQ(texts_of(root.groups[1], "weight_names"),
            (std::vector<std::string>{"1_bn/gamma", "1_bn/beta", "1_bn/moving_mean", "1_bn/moving_variance"}));
}

TEST(KerasWeights, HaveKerasDimensions) {
  GraphBuilder b({.image = {2, 4, 3}, .name = "dimensions"});
  Value x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = {1, 3}, .padding = Padding::same()});
  x = b.batch_norm("bn", x, {.scale = false});
  x = b.convolution("groups", x, {.out_channels = 6, .kernel = {3, 1}, .padding = Padding::same(), .groups = 2});
  x = b.convolution("depthwise", x, {.out_channels = 12, .kernel = {2, 1}, .groups = 6});
  x = b.dropout("dropout", b.flatten("flatten", x));
  x = b.linear("fc1", x, {.out_features = 5});
  const Graph graph = b.build(b.linear("fc2", x, {.out_features = 2, .bias = false}));
  const ParameterSet set = counting_set(graph);
  const formats::Hdf5Group root = to_keras(graph, set);
  const auto shape = [&](const char* layer) { return dataset_of(root, layer, 0).shape; };
  EXPECT_EQ(shape("conv"), (Shape{1, 3, 2, 4}));
  EXPECT_EQ(shape("groups"), (Shape{3, 1, 2, 6}));
  EXPECT_EQ(shape("depthwise"), (Shape{2, 1, 6, 2}));
  EXPECT_EQ(shape("fc1"), (Shape{108, 5}));
  EXPECT_EQ(shape("fc2"), (Shape{5, 2}));
  EXPECT_EQ(dataset_of(root, "bn", 0).name, "bn/beta");

  // Ours at [out][in][0][column] is Keras' at [0][column][in][out].
  const std::vector<float> conv = dataset_of(root, "conv", 0).values();
  EXPECT_EQ(conv[(2 * 2 + 1) * 4 + 3], (3 * 2 + 1) * 3 + 2);
  // Ours at [channel * 2 + multiplier][0][row][0] is [row][0][channel][multiplier].
  const std::vector<float> depthwise = dataset_of(root, "depthwise", 0).values();
  EXPECT_EQ(depthwise[(1 * 6 + 4) * 2 + 1], (4 * 2 + 1) * 2 + 1);
  // The image before `flatten` is [12, 3, 3]: ours at [out][channel][row][column] is [row][column][channel][out].
  const std::vector<float> fc1 = dataset_of(root, "fc1", 0).values();
  EXPECT_EQ(fc1[((1 * 3 + 2) * 12 + 7) * 5 + 4], ((4 * 12 + 7) * 3 + 1) * 3 + 2);
  const std::vector<float> fc2 = dataset_of(root, "fc2", 0).values();
  EXPECT_EQ(fc2[3 * 2 + 1], 1 * 5 + 3);
}

// Conv2DTranspose's kernel is [height, width, out, in]; outputs of heads are walked behind the main one's.
TEST(KerasWeights, HaveTransposedConvolutionsAndHeads) {
  GraphBuilder b({.image = {2, 3, 3}, .name = "heads"});
  const Value trunk = b.transposed_convolution("up", b.input(), {.out_channels = 3, .kernel = {2, 1}, .bias = true});
  const Value groups = b.transposed_convolution("groups", b.input(), {.out_channels = 4, .groups = 2});
  const Value head = b.linear("head", b.global_average_pool("head_pool", groups), {.out_features = 2});
  const Value logits =
      b.linear("fc", b.global_average_pool("pool", b.upsample("wide", trunk, {})), {.out_features = 5});
  const Graph graph = b.build(logits, {{"auxiliary", head.id, 0.4}});
  const ParameterSet set = counting_set(graph);
  const formats::Hdf5Group root = to_keras(graph, set);
  EXPECT_EQ(texts_of(root, "layer_names"), (std::vector<std::string>{"up", "groups", "fc", "head"}));
  EXPECT_EQ(dataset_of(root, "up", 0).name, "up/kernel");
  EXPECT_EQ(dataset_of(root, "up", 0).shape, (Shape{2, 1, 3, 2}));
  EXPECT_EQ(dataset_of(root, "up", 0).values()[(1 * 3 + 2) * 2 + 1], (1 * 3 + 2) * 2 + 1);  // ours at [1][2][1][0]
  EXPECT_EQ(dataset_of(root, "up", 1).name, "up/bias");
  EXPECT_EQ(dataset_of(root, "groups", 0).name, "groups/weight");
  EXPECT_EQ(dataset_of(root, "groups", 0).shape, (Shape{2, 2, 1, 1}));
}

// The weights of transformers and ConvNeXt, with the names and shapes of keras.layers.LayerNormalization, Dense and
// LayerScale.
TEST(KerasWeights, LayersOfTransformersHaveKerasNames) {
  GraphBuilder b({.image = {3, 2, 2}, .name = "transformer"});
  Value x = b.layer_norm("norm", b.input(), {});
  x = b.convolution("dense", x, {.out_channels = 4, .bias = true, .form = Convolution::Form::kLinear});
  x = b.layer_scale("scale", x, {});
  const Graph graph = b.build(b.global_average_pool("pool", x));
  const ParameterSet set = counting_set(graph);
  const formats::Hdf5Group root = to_keras(graph, set);
  const auto name = [&](const char* layer, size_t index) { return dataset_of(root, layer, index).name; };
  EXPECT_EQ(name("norm", 0), "norm/gamma");
  EXPECT_EQ(name("norm", 1), "norm/beta");
  EXPECT_EQ(name("dense", 0), "dense/kernel");
  EXPECT_EQ(dataset_of(root, "dense", 0).shape, (Shape{3, 4}));
  EXPECT_EQ(dataset_of(root, "dense", 0).values()[1 * 4 + 2], 2 * 3 + 1);  // ours at [2][1]
  EXPECT_EQ(name("dense", 1), "dense/bias");
  EXPECT_EQ(name("scale", 0), "scale/gamma");
  EXPECT_EQ(dataset_of(root, "scale", 0).shape, Shape{4});
}

// An attribute holds 64 KiB.
TEST(KerasWeights, LongListsOfNamesAreCutIntoNumberedAttributes) {
  GraphBuilder b({.image = {1, 1, 1}, .name = "long"});
  Value x = b.input();
  const std::string filling(400, 'x');
  for (int i = 0; i < 200; ++i) x = b.convolution(fmt::format("{}{:03}", filling, i), x, {.out_channels = 1});
  const Graph graph = b.build(b.flatten("flatten", x));
  const ParameterSet set = counting_set(graph);
  const formats::Hdf5Group root = to_keras(graph, set);
  EXPECT_TRUE(texts_of(root, "layer_names").empty());
  EXPECT_EQ(texts_of(root, "layer_names0").size(), 160u);  // 64512 / 403
  EXPECT_EQ(texts_of(root, "layer_names1").size(), 40u);
  EXPECT_EQ(texts_of(root, "layer_names1").back(), filling + "199");

  // And are put together again.
  for (const Segment& segment : set.segments()) set.value(segment.id).fill_(segment.id.index + 1);
  const core::TempDir temp;
  formats::write_hdf5(temp.file("w.h5"), root);
  ParameterSet read = counting_set(graph);
  const std::vector<int> nodes = weighted_nodes(graph);
  load_keras(graph, read, nodes, formats::Hdf5File(temp.file("w.h5")), "/");
  for (const Segment& segment : set.segments()) {
    EXPECT_EQ(read.value(segment.id).item<float>(), static_cast<float>(segment.id.index + 1));
  }
  EXPECT_EQ(core::message_of(
                [&] {
                  load_keras(graph, read, {nodes.begin(), nodes.end() - 1}, formats::Hdf5File(temp.file("w.h5")), "/");
                },
                core::ErrorCode::kCorruptData),
            "the weights are not those of the model: " + temp.file("w.h5") +
                ": /: expected 199 layers with weights, got 200");
}

TEST(KerasWeights, OfAnotherModelAreNamedWithTheirPlace) {
  const auto graph_of = [](int64_t channels, bool bias) {
    GraphBuilder b({.image = {3, 2, 2}, .name = "small"});
    const Value x = b.convolution("c", b.input(), {.out_channels = channels, .bias = bias});
    return b.build(b.global_average_pool("pool", x));
  };
  const Graph graph = graph_of(2, false);
  const ParameterSet set = counting_set(graph);
  const core::TempDir temp;
  const std::string path = temp.file("w.h5");
  formats::write_hdf5(path, to_keras(graph, set));
  const auto loaded = [&](const Graph& other) {
    ParameterSet read = counting_set(other);
    read.values().zero_();
    const uint64_t version = read.version();
    const std::string message =
        core::message_of([&] { load_keras(other, read, weighted_nodes(other), formats::Hdf5File(path), "/"); },
                         core::ErrorCode::kCorruptData);
    EXPECT_TRUE(message != "no error" || at::equal(read.values(), set.values())) << message;
    EXPECT_EQ(read.version() > version, message == "no error") << "executors keep packed copies of a version";
    return message;
  };
  EXPECT_EQ(loaded(graph), "no error");
  EXPECT_EQ(loaded(graph_of(2, true)),
            "the weights are not those of the model: " + path + ": /c: expected 2 weights of c, got 1");
  EXPECT_EQ(loaded(graph_of(5, false)), "the weights are not those of the model: " + path +
                                            ": /c/c/kernel for c: expected [1, 1, 3, 5], got [1, 1, 3, 2]");
}

// Only a convolution with a group for each channel has its numbers in another shape in Keras, too.
TEST(KerasWeights, AKernelOfOneGroupHasOneShape) {
  GraphBuilder b({.image = {3, 2, 2}, .name = "small"});
  const Graph graph = b.build(b.global_average_pool("pool", b.convolution("c", b.input(), {.out_channels = 2})));
  ParameterSet set = counting_set(graph);
  formats::Hdf5Group root = to_keras(graph, set);
  ASSERT_EQ(root.groups.at(0).datasets.at(0).shape, (Shape{1, 1, 3, 2}));
  root.groups[0].datasets[0].shape = {1, 1, 1, 6};
  const core::TempDir temp;
  formats::write_hdf5(temp.file("w.h5"), root);
  EXPECT_EQ(core::message_of(
                [&] { load_keras(graph, set, weighted_nodes(graph), formats::Hdf5File(temp.file("w.h5")), "/"); },
                core::ErrorCode::kCorruptData),
            "the weights are not those of the model: " + temp.file("w.h5") +
                ": /c/c/kernel for c: expected [1, 1, 3, 2], got [1, 1, 1, 6]");
}

// Layers between the image and the linear layer that keep the order of elements.
TEST(KerasWeights, OfAFlattenedImageCountChannelsFastest) {
  for (int between = 0; between < 4; ++between) {
    GraphBuilder b({.image = {2, 1, 3}, .name = "flat"});
    Value x = b.flatten("flatten", b.input());
    if (between == 1) x = b.activation("relu", x);
    if (between == 2) x = b.dropout("dropout", x);
    if (between == 3) x = b.stochastic_depth("depth", x, 0.5);
    const Graph graph = b.build(b.linear("fc", x, {.out_features = 1}));
    const ParameterSet set = counting_set(graph);
    const formats::Hdf5Group root = to_keras(graph, set);
    EXPECT_EQ(dataset_of(root, "fc", 0).shape, (Shape{6, 1}));
    EXPECT_EQ(dataset_of(root, "fc", 0).values(), (std::vector<float>{0, 3, 1, 4, 2, 5})) << between;
  }
}

// 160 names of 403 bytes are 64,480 of the 64,512 that an attribute may have.
TEST(KerasWeights, AsManyNamesAsFitAreInOneAttribute) {
  for (const int count : {160, 161}) {
    GraphBuilder b({.image = {1, 1, 1}, .name = "long"});
    Value x = b.input();
    const std::string filling(400, 'x');
    for (int i = 0; i < count; ++i) x = b.convolution(fmt::format("{}{:03}", filling, i), x, {.out_channels = 1});
    const Graph graph = b.build(b.flatten("flatten", x));
    const formats::Hdf5Group root = to_keras(graph, counting_set(graph));
    EXPECT_EQ(texts_of(root, "layer_names").size(), count == 160 ? 160U : 0U);
    EXPECT_EQ(texts_of(root, "layer_names0").size(), count == 160 ? 0U : 160U);
    EXPECT_EQ(texts_of(root, "layer_names1").size(), count == 160 ? 0U : 1U);
  }
}

TEST(KerasWeights, RefuseCustomLayers) {
  GraphBuilder b({.image = {4}, .name = "foreign"});
  const Graph graph = b.build(b.foreign("own", b.input(), opaque_layer("torch::nn::Own", {2})));
  EXPECT_EQ(core::code_of([&] { to_keras(graph, ParameterSet()); }), core::ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trainyard::nn::keras_weights_test
