// Keras' networks here against what Keras says of its own. Their logits are compared by
// tools/golden/check_keras_weights.py.

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models {
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
      {"inception_v3", {"conv2d", "conv2d_93", "batch_normalization_93"}}};
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

// The grids of Szegedy et al., "Rethinking the Inception architecture for computer vision", 2015, table 1. The pools
// have no weights, and the mean behind the last grid takes any size.
TEST(KerasZoo, InceptionHasTheGridsOfItsPaper) {
  const nn::Graph graph = build_model("keras/inception_v3", "imagenet", {});
  const std::vector<std::pair<std::string, nn::Shape>> expected{
      {"mixed2", {288, 35, 35}}, {"mixed7", {768, 17, 17}}, {"mixed8", {1280, 8, 8}}, {"mixed10", {2048, 8, 8}}};
  for (const auto& [name, shape] : expected) EXPECT_EQ(graph.node(name).shape, shape) << name;
}

}  // namespace
}  // namespace trainyard::models
