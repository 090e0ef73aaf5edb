#include "trainyard/nn/export/onnx_model.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn {
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

// tests/onnx_runtime_runs_layers.py, which sets the folder, runs each model in ONNX Runtime and compares the logits.
TEST(OnnxModel, WritesEachLayerForOnnxRuntime) {
  const core::TempDir temp;
  const char* given = std::getenv("TRAINYARD_ONNX_DIR");
  const std::string folder = given != nullptr ? given : temp.path();
  for (const LayerCase& layer : layer_cases()) {
    SCOPED_TRACE(layer.name);
    GraphBuilder b({.image = layer.image, .name = layer.name});
    const auto x = layer.build(b, b.input());
    const Graph graph = b.build(b.shape(x).size() == 1 ? x : b.flatten("flat_output", x));
    const Numbers numbers(graph);
    const std::string stem = core::join_path(folder, layer.name);
    formats::write_onnx(stem + ".onnx", to_onnx(graph, numbers.set));
    Shape batch = layer.image;
    batch.insert(batch.begin(), 3);
    const at::Tensor images = at::empty(batch, at::kFloat);
    const auto range = static_cast<float>(layer.range);
    fill(images, "images", -range, range);
    write_array(stem + ".images.npy", images);
    write_array(stem + ".logits.npy", numbers.executor->forward(images, {}));
  }
}

Graph small_graph() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::same()});
  x = b.dropout("dropout", b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x))));
  return b.build(b.linear("fc", x, {.out_features = 5}));
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
  const Graph foreign = b.build(b.foreign(
      "own", b.input(),
      {.description = "torch::nn::Own", .make = [] { return std::shared_ptr<ForeignModule>(); }, .output_shape = {2}}));
  try {
    to_onnx(foreign, ParameterSet());
    ADD_FAILURE() << "a foreign module was exported";
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
}  // namespace trainyard::nn
