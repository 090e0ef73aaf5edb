#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/position_embedding.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::weights_test {
namespace {

// The variables of a graph, as a seed initializes them.
struct Variables {
  explicit Variables(const nn::Graph& graph, uint64_t seed) {
    executor = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(seed);
  }
  nn::ParameterSet set;
  std::unique_ptr<nn::Executor> executor;
};

nn::Graph graph_of(int64_t classes, bool batch_norm = true, int64_t channels = 8) {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
  auto x = b.convolution("conv", b.input(), {.out_channels = channels, .kernel = 3, .padding = nn::Padding::all(1)});
  if (batch_norm) x = b.batch_norm("bn", x);
  x = b.global_average_pool("pool", b.activation("relu", x));
  return b.build(b.linear("fc", x, {.out_features = classes}));
}

TEST(Weights, ComeBackAsTheyWere) {
  const core::TempDir temp;
  Variables saved(graph_of(6), 1), loaded(graph_of(6), 2);
  saved.set.buffer(*saved.set.find_buffer("bn.running_mean")).fill_(0.5);
  ASSERT_FALSE(at::equal(saved.set.values(), loaded.set.values()));
  save_weights(temp.file("w"), saved.set);
  const uint64_t version = loaded.set.version();
  const LoadedWeights result = load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 6);
  EXPECT_EQ(result.tensors, 7);  // convolution, norm's four, linear's two
  EXPECT_TRUE(result.head.empty());
  EXPECT_TRUE(at::equal(saved.set.values(), loaded.set.values()));
  EXPECT_EQ(loaded.set.buffer(*loaded.set.find_buffer("bn.running_mean")).sum().item<float>(), 4);
  EXPECT_NE(loaded.set.version(), version) << "packed copies would stay";
}

TEST(Weights, NanIsRefusedNamingTheTensors) {
  const core::TempDir temp;
  Variables saved(graph_of(6), 1), loaded(graph_of(6), 2);
  saved.set.value(*saved.set.find("conv.weight")).view({-1}).slice(0, 3, 5).fill_(std::nan(""));
  saved.set.buffer(*saved.set.find_buffer("bn.running_var")).slice(0, 0, 1).fill_(HUGE_VAL);
  save_weights(temp.file("w"), saved.set);
  const core::Error error =
      core::thrown_by([&] { load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 6); });
  EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("weights hold NaN or infinity: " + temp.file("w")));
  EXPECT_THAT(error.what(),
              ::testing::HasSubstr("2 tensors with others: conv.weight (2 of 216), bn.running_var (1 of 8)"));
}

TEST(Weights, LeaveAHeadForOtherClassesNew) {
  const core::TempDir temp;
  Variables saved(graph_of(6), 1), loaded(graph_of(9), 2);
  save_weights(temp.file("w"), saved.set);
  const at::Tensor fresh = loaded.set.value(*loaded.set.find("fc.weight")).clone();
  const LoadedWeights result = load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 9);
  EXPECT_EQ(result.head, (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_EQ(result.file_classes, 6);
  EXPECT_TRUE(at::equal(loaded.set.value(*loaded.set.find("fc.weight")), fresh));
  EXPECT_TRUE(
      at::equal(loaded.set.value(*loaded.set.find("conv.weight")), saved.set.value(*saved.set.find("conv.weight"))));
}

// A head is one layer, all of it: not one tensor of it, and no layer in the middle that happens to have as many
// channels as there are classes.
TEST(Weights, OnlyTheHeadIsLeftNew) {
  const core::TempDir temp;
  const auto message = [&](const std::vector<formats::FloatTensor>& tensors) {
    formats::write_safetensors(temp.file("w"), tensors);
    Variables loaded(graph_of(6, false, 6), 2);
    return core::message_of([&] { load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 6); });
  };
  const std::vector<float> zeros(1000);
  const auto tensor = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return formats::FloatTensor{name, std::move(shape), std::span(zeros).first(static_cast<size_t>(count))};
  };
  EXPECT_EQ(message({tensor("conv.weight", {6, 3, 3, 3}), tensor("fc.weight", {9, 6}), tensor("fc.bias", {9})}),
            "no error");
  EXPECT_THAT(message({tensor("conv.weight", {6, 3, 3, 3}), tensor("fc.weight", {9, 6}), tensor("fc.bias", {6})}),
              ::testing::HasSubstr("of another shape: fc.weight is [6, 6], in the file [9, 6]"));
  EXPECT_THAT(
      message({tensor("conv.weight", {9, 3, 3, 3}), tensor("fc.weight", {9, 6}), tensor("fc.bias", {9})}),
      ::testing::HasSubstr("of another shape: conv.weight is [6, 3, 3, 3], in the file [9, 3, 3, 3], fc.weight"));
}

// torchvision's Inception v3 and GoogLeNet with --auxiliary_heads: each of the classifiers has a head.
TEST(Weights, LeaveTheHeadsOfAuxiliaryClassifiersNew) {
  const core::TempDir temp;
  const auto graph = [](int64_t classes, int64_t auxiliary_classes) {
    nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
    auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
    x = b.global_average_pool("pool", x);
    const auto logits = b.linear("fc", x, {.out_features = classes});
    return b.build(logits, {{"auxiliary", b.linear("aux.fc", x, {.out_features = auxiliary_classes}).id}});
  };
  Variables saved(graph(6, 6), 1), other(graph(6, 7), 1), loaded(graph(9, 9), 2);
  save_weights(temp.file("w"), saved.set);
  const LoadedWeights result = load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 9);
  EXPECT_THAT(result.head, ::testing::UnorderedElementsAre("fc.weight", "fc.bias", "aux.fc.weight", "aux.fc.bias"));
  EXPECT_EQ(result.file_classes, 6);
  EXPECT_EQ(result.tensors, 1);
  save_weights(temp.file("other"), other.set);
  EXPECT_THAT(core::message_of([&] { load_weights(formats::open_tensor_file(temp.file("other")), loaded.set, 9); }),
              ::testing::HasSubstr("of another shape: "))
      << "of two numbers of classes";
}

// Was published with a batch norm that its graph lacks.
const models::ModelRegistration kWithoutNorm({.name = "without_norm_of_the_test",
                                              .auxiliary = {"bn."},
                                              .build = [](const models::ModelOptions& options) {
                                                return graph_of(options.num_classes, false);
                                              }});

TEST(Weights, OfAuxiliaryClassifiersAreLeftOut) {
  const core::TempDir temp;
  const nn::Graph graph = models::build_model("without_norm_of_the_test", "imagenet", {.num_classes = 6});
  Variables saved(graph_of(6), 1), loaded(graph, 2);
  save_weights(temp.file("w"), saved.set);
  const formats::TensorFile file = named_for_graph(formats::open_tensor_file(temp.file("w")), graph);
  EXPECT_EQ(load_weights(file, loaded.set, 6).tensors, 3);
}

// torchvision's published DenseNets and vision transformers have the names of earlier releases, which it reads itself.
TEST(Weights, UnderTorchvisionsFormerNamesAreFound) {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
  auto x = b.convolution("block.conv2", b.input(), {.out_channels = 4, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.batch_norm("block.norm2", x));
  x = b.linear("block.mlp.3", b.linear("block.mlp.0", x, {.out_features = 7}), {.out_features = 5});
  const nn::Graph graph = b.build(b.linear("fc", x, {.out_features = 6}));
  const std::vector<std::pair<std::string, std::string>> names = {{"block.conv2.", "block.conv.2."},
                                                                  {"block.norm2.", "block.norm.2."},
                                                                  {"block.mlp.0.", "block.mlp.linear_1."},
                                                                  {"block.mlp.3.", "block.mlp.linear_2."}};
  Variables saved(graph, 1), loaded(graph, 2);
  saved.set.buffer(*saved.set.find_buffer("block.norm2.running_mean")).fill_(0.5);
  const formats::TensorFile file = tensor_file_of(saved.set, "densenet");
  std::vector<formats::StoredTensor> tensors = file.tensors();
  int renamed = 0;
  for (formats::StoredTensor& tensor : tensors) {
    for (const auto& [now, before] : names) {
      if (!tensor.name.starts_with(now)) continue;
      tensor.name.replace(0, now.size(), before);
      ++renamed;
      break;
    }
  }
  ASSERT_EQ(renamed, 9);
  EXPECT_EQ(load_weights(file.with_tensors(tensors), loaded.set, 6).tensors, 11);
  EXPECT_TRUE(at::equal(saved.set.values(), loaded.set.values()));
  EXPECT_EQ(loaded.set.buffer(*loaded.set.find_buffer("block.norm2.running_mean")).sum().item<float>(), 2);
  for (formats::StoredTensor& tensor : tensors) {
    if (tensor.name == "block.conv.2.weight") tensor.name = "block.conv.3.weight";
  }
  EXPECT_THAT(core::message_of([&] { load_weights(file.with_tensors(tensors), loaded.set, 6); }),
              ::testing::HasSubstr("missing in the file: block.conv2.weight"));
}

TEST(Weights, OfAnotherModelChangeNothing) {
  const core::TempDir temp;
  const auto message = [&](const nn::Graph& from, const nn::Graph& to) -> std::string {
    Variables saved(from, 1), loaded(to, 2);
    save_weights(temp.file("w"), saved.set);
    const at::Tensor before = loaded.set.values().clone();
    try {
      load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 6);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
      EXPECT_TRUE(at::equal(loaded.set.values(), before));
      return error.what();
    }
    return "loaded";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  std::string text = message(graph_of(6, false), graph_of(6));
  EXPECT_TRUE(has(text, "missing in the file: bn.weight, bn.bias, bn.running_mean, bn.running_var")) << text;
  text = message(graph_of(6), graph_of(6, false));
  EXPECT_TRUE(has(text, "only in the file: bn.bias")) << text;
  text = message(graph_of(6, true, 8), graph_of(6, true, 16));
  EXPECT_TRUE(has(text, "conv.weight is [16, 3, 3, 3], in the file [8, 3, 3, 3]")) << text;
}

// A file of random weights and statistics for any model of the zoo: the scripts of tools/golden that compare exports
// with other programs name the model, as "MODEL DATASET", and the file.
TEST(Weights, OfAModelAtRandom) {
  const core::TempDir temp;
  const char *given = std::getenv("TRAINYARD_WEIGHTS_MODEL"), *file = std::getenv("TRAINYARD_WEIGHTS_FILE");
  std::istringstream words(given != nullptr ? given : "resnet20 cifar10");
  std::string model, dataset;
  words >> model >> dataset;
  const int64_t classes = models::find_dataset(dataset).num_classes;
  Variables variables(models::build_model(model, dataset, {.num_classes = classes}), 5);
  const auto vary = [](const at::Tensor& tensor, const std::string& name, float low, float high) {
    core::RandomStream stream(6, name);
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data_ptr<float>()[i] += stream.uniform(low, high);
  };
  // Norms, biases and ViT's head start as constants, which would hide that one is left out; of ConvNeXt's layer scale,
  // which starts near zero, nothing is left beside what is added.
  for (const nn::Segment& segment : variables.set.segments()) {
    if (segment.spec.init.kind != nn::Initializer::Kind::kConstant) continue;
    vary(variables.set.value(segment.id), segment.spec.name, -0.3F, 0.3F);
  }
  for (int i = 0; i < static_cast<int>(variables.set.buffer_count()); ++i) {
    const at::Tensor buffer = variables.set.buffer(i);
    if (buffer.scalar_type() == at::kFloat) vary(buffer, variables.set.buffer_spec(i).name, -0.3F, 0.3F);
  }
  const std::string path = file != nullptr ? file : temp.file("weights.safetensors");
  save_weights(path, variables.set);
  EXPECT_EQ(formats::open_tensor_file(path).tensors().size(), variables.set.size() + variables.set.buffer_count());
}

// Fine-tuning on as many classes as the file has: its head is of other classes all the same.
TEST(Weights, AHeadThatIsToBeNewIsNotLoadedWhereItsSizeFits) {
  const core::TempDir temp;
  Variables saved(graph_of(6), 1), loaded(graph_of(6), 2);
  save_weights(temp.file("w"), saved.set);
  const at::Tensor fresh = loaded.set.value(*loaded.set.find("fc.weight")).clone();
  const LoadedWeights result = load_weights(formats::open_tensor_file(temp.file("w")), loaded.set, 6,
                                            std::vector<PositionGrid>(), {"fc.weight", "fc.bias"});
  EXPECT_EQ(result.head, (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_EQ(result.file_classes, 6);
  EXPECT_EQ(result.tensors, 5);
  EXPECT_TRUE(at::equal(loaded.set.value(*loaded.set.find("fc.weight")), fresh));
  EXPECT_TRUE(
      at::equal(loaded.set.value(*loaded.set.find("conv.weight")), saved.set.value(*saved.set.find("conv.weight"))));
}

TEST(Weights, OfAModelInMemoryAreAFile) {
  Variables saved(graph_of(6), 1), loaded(graph_of(6), 2);
  saved.set.buffer(*saved.set.find_buffer("bn.running_var")).fill_(0.25);
  const formats::TensorFile file = tensor_file_of(saved.set, "the teacher");
  saved.set.values().fill_(7);  // the file has a copy
  EXPECT_EQ(file.path(), "the teacher");
  EXPECT_EQ(load_weights(file, loaded.set, 6).tensors, 7);
  Variables again(graph_of(6), 1);
  EXPECT_TRUE(at::equal(loaded.set.values(), again.set.values()));
  EXPECT_EQ(loaded.set.buffer(*loaded.set.find_buffer("bn.running_var")).sum().item<float>(), 2);
}

}  // namespace
}  // namespace trainyard::train::weights_test
