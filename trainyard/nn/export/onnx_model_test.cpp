#include "trainyard/nn/export/onnx_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/export/write_onnx.h"
#include "trainyard/nn/testing/conformance_suite.h"
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

// Writes each layer with inputs and outputs into a folder. tests/onnx_runtime_runs_layers.py starts it, runs each model
// in ONNX Runtime and compares the outputs.
void write_each_layer(const std::string& folder) {
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
    write_with_values(core::join_path(folder, layer.name), numbers, {{"images", images}});
  }
  const Numbers numbers(graph_of_several_values());
  const at::Tensor images = at::empty({3, 3, 6, 5}, at::kFloat), depth = at::empty({3, 2, 6, 5}, at::kFloat);
  fill(images, "images", -2, 2);
  fill(depth, "depth", -2, 2);
  write_with_values(core::join_path(folder, "SeveralValues"), numbers, {{"images", images}, {"depth", depth}});
}
const bool kWritesEachLayer = core::add_helper_task("TRAINYARD_ONNX_DIR", "OnnxLayers.Write", write_each_layer);

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
  EXPECT_THROW(to_onnx(small_graph(), doubles), core::Error);
  EXPECT_THROW(to_onnx(small_graph(), ParameterSet()), core::Error);
}

}  // namespace
}  // namespace trainyard::nn::onnx_model_test
