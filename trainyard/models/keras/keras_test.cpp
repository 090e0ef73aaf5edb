// Keras' networks here against what Keras says of its own. Their logits are compared by
// tools/golden/check_keras_weights.py.

#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/models/keras/layers.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::models::keras_test {
namespace {

// Trainable parameters, as `keras.applications.X(weights=None).summary()` of Keras 3.15 lists them.
TEST(KerasZoo, HasKerasParameters) {
  const std::vector<std::pair<std::string, int64_t>> expected{
      {"resnet50", 25583592},    {"resnet101", 44601832},   {"resnet152", 60268520},  {"vgg16", 138357544},
      {"vgg19", 143667240},      {"mobilenet_v2", 3504872}, {"densenet121", 7978856}, {"densenet169", 14149480},
      {"densenet201", 20013928}, {"inception_v3", 23817352}};
  for (const auto& [name, parameters] : expected) {
    EXPECT_EQ(build_model("keras/" + name, "imagenet", {.num_classes = 1000}).parameter_count(), parameters) << name;
  }
}

// Layers of one name in Keras and here, so that weights travel by name, too.
TEST(KerasZoo, HasKerasLayerNames) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> expected{
      {"resnet50", {"conv1_conv", "conv2_block1_0_bn", "conv5_block3_3_conv", "predictions"}},
      {"vgg16", {"block1_conv1", "block5_conv3", "fc1", "fc2"}},
      {"mobilenet_v2", {"Conv1", "bn_Conv1", "expanded_conv_depthwise_BN", "block_16_project", "Conv_1_bn"}},
      {"densenet121", {"conv1_conv", "conv5_block16_2_conv", "pool4_conv", "bn"}},
      {"inception_v3",
       {"conv2d", "conv2d_93", "batch_normalization_93", "activation", "activation_93", "max_pooling2d",
        "max_pooling2d_3", "average_pooling2d", "average_pooling2d_8", "concatenate", "concatenate_1", "mixed0",
        "mixed9_0", "mixed9", "mixed9_1", "mixed10", "predictions"}}};
  for (const auto& [name, layers] : expected) {
    const nn::Graph graph = build_model("keras/" + name, "imagenet", {});
    for (const std::string& layer : layers) EXPECT_NO_THROW(graph.node(layer)) << name;
  }
}

// Keras' GlorotUniform takes the fans from the kernel's shape: [height, width, in, out] and, where each channel has a
// kernel of its own, [height, width, in, 1].
TEST(KerasZoo, StartsAsKeras) {
  for (const char* name : {"resnet50", "vgg16", "mobilenet_v2", "densenet121", "inception_v3"}) {
    const nn::Graph graph = build_model(std::string("keras/") + name, "imagenet", {});
    for (const nn::Node& node : graph.nodes) {
      const auto* const op = std::get_if<nn::Convolution>(&node.op);
      if (op == nullptr && !std::holds_alternative<nn::Linear>(node.op)) continue;
      const nn::ParameterSpec& weight = node.parameters.at(0);
      const bool depthwise = op != nullptr && op->groups > 1;
      const int64_t in = depthwise ? op->groups : weight.shape.at(1), out = depthwise ? 1 : weight.shape.at(0);
      const int64_t window = op == nullptr ? 1 : op->kernel.height * op->kernel.width;
      EXPECT_EQ(weight.init.kind, nn::Initializer::Kind::kUniform) << name << " " << weight.name;
      EXPECT_NEAR(weight.init.value, std::sqrt(6.0 / static_cast<double>(window * (in + out))), 1e-12)
          << name << " " << weight.name;
    }
  }
}

// tools/golden/keras_batch_norm.py: "<what> <step>" -> numbers.
std::map<std::string, std::vector<float>> golden_norm() {
  std::istringstream text(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/models/testdata/keras_batch_norm.txt")));
  std::map<std::string, std::vector<float>> lines;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string what, step;
    words >> what >> step;
    for (float value = 0; words >> value;) lines[what + " " + step].push_back(value);
  }
  return lines;
}

TEST(KerasZoo, KeepsTheStatisticsThatKerasKeeps) {
  nn::GraphBuilder b({.image = {4, 3, 2}, .name = "norm"});
  const nn::Graph graph = b.build(b.flatten("flat", b.batch_norm("norm", b.input(), keras::batch_norm(1e-3, 0.75))));
  auto golden = golden_norm();
  for (const char* executor : {"reference", "cpu"}) {
    nn::ParameterSet set;
    nn::GradientSink sink(set);
    const auto norm = nn::make_executor(executor, graph, {.parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(1);
    for (const char* step : {"0", "1", "2"}) {
      std::vector<float>& pixels = golden.at(std::string("images ") + step);
      ASSERT_EQ(pixels.size(), 48U);
      norm->forward(at::from_blob(pixels.data(), {2, 3, 2, 4}, at::kFloat).permute({0, 3, 1, 2}).contiguous(), {});
      for (const auto& [buffer, what] : {std::pair{"norm.running_mean", "mean "}, {"norm.running_var", "variance "}}) {
        const at::Tensor found = set.buffer(*set.find_buffer(buffer));
        const std::vector<float>& expected = golden.at(what + std::string(step));
        ASSERT_EQ(expected.size(), 4U);
        for (size_t c = 0; c < 4; ++c) {
          EXPECT_NEAR(found.const_data_ptr<float>()[c], expected[c], 1e-6 * std::abs(expected[c]))
              << executor << ", " << what << step;
        }
      }
    }
  }
}

// And those of other programs' networks keep PyTorch's and TensorFlow 1's, as before.
TEST(KerasZoo, AloneKeepsTheBiasedVariance) {
  for (const std::string& name : model_names(DatasetFamily::kImagenet)) {
    const nn::Graph graph = build_model(name, "imagenet", {});
    for (const nn::Node& node : graph.nodes) {
      const auto* const norm = std::get_if<nn::BatchNorm>(&node.op);
      if (norm == nullptr) continue;
      EXPECT_EQ(norm->biased_running_variance, name.starts_with("keras/")) << name << " " << node.name;
    }
  }
}

// The grids of Szegedy et al., "Rethinking the Inception architecture for computer vision", 2015, table 1. The pools
// have no weights, and the mean behind the last grid takes any size.
TEST(KerasZoo, InceptionHasTheGridsOfItsPaper) {
  const nn::Graph graph = build_model("keras/inception_v3", "imagenet", {});
  const std::vector<std::pair<std::string, nn::Shape>> expected{
      {"mixed2", {288, 35, 35}}, {"mixed7", {768, 17, 17}}, {"mixed8", {1280, 8, 8}}, {"mixed10", {2048, 8, 8}}};
  for (const auto& [name, shape] : expected) EXPECT_EQ(graph.node(name).shape, shape) << name;
}

}  // namespace
}  // namespace trainyard::models::keras_test
