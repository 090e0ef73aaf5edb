// Rates of dropout and stochastic depth, and the decay of batch norms, in the models of the zoo.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/testing/drop_rates.h"

namespace trainyard::models::training_options_test {
namespace {

std::vector<std::string> parameter_names(const nn::Graph& graph) {
  std::vector<std::string> names;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& spec : node.parameters) names.push_back(spec.name);
    for (const nn::BufferSpec& spec : node.buffers) names.push_back(spec.name);
  }
  return names;
}

TEST(TrainingOptions, ResidualNetworksGetALayerForEachBlock) {
  struct Case {
    const char *model, *dataset;
    size_t blocks;
  };
  for (const Case& tested :
       {Case{"resnet20", "cifar10", 9}, Case{"resnet50", "imagenet", 16}, Case{"resnet50_v2", "imagenet", 16},
        Case{"torchvision/resnet18", "imagenet", 8}, Case{"keras/resnet50", "imagenet", 16},
        Case{"torchvision/mobilenet_v2", "imagenet", 10}, Case{"torchvision/resnext50_32x4d", "imagenet", 16},
        Case{"torchvision/vit_b_16", "imagenet", 24}}) {
    const nn::Graph plain = build_model(tested.model, tested.dataset, {.num_classes = 10});
    const nn::Graph deep = build_model(tested.model, tested.dataset, {.num_classes = 10, .stochastic_depth = 0.2});
    const std::vector<double> drops = drop_rates<nn::StochasticDepth>(deep);
    ASSERT_EQ(drops.size(), tested.blocks) << tested.model;
    EXPECT_TRUE(std::is_sorted(drops.begin(), drops.end()));
    EXPECT_DOUBLE_EQ(drops.front(), 0.2 / static_cast<double>(tested.blocks));
    EXPECT_DOUBLE_EQ(drops.back(), 0.2);
    EXPECT_EQ(parameter_names(deep), parameter_names(plain)) << "checkpoints fit";
    EXPECT_TRUE(
        drop_rates<nn::StochasticDepth>(build_model(tested.model, tested.dataset, {.stochastic_depth = 0.0})).empty());
  }
}

// torchvision's stochastic_depth_prob.
TEST(TrainingOptions, NetworksThatHaveStochasticDepthKeepTheirRule) {
  const auto build = [](const char* model, std::optional<double> drop) {
    return drop_rates<nn::StochasticDepth>(
        build_model(model, "imagenet", {.num_classes = 10, .stochastic_depth = drop}));
  };
  for (const char* model : {"torchvision/efficientnet_b0", "torchvision/swin_t"}) {
    EXPECT_EQ(build(model, {}), build(model, 0.2)) << model;
  }
  EXPECT_EQ(build("torchvision/convnext_tiny", {}), build("torchvision/convnext_tiny", 0.1));
  EXPECT_DOUBLE_EQ(build("torchvision/convnext_tiny", 0.3).back(), 0.3);
  const std::vector<double> efficient = build("torchvision/efficientnet_b0", 0.4);
  EXPECT_DOUBLE_EQ(efficient.back(), 0.4 * 14 / 16) << "its last residual block is the 15th of 16";
  for (const double drop : build("torchvision/swin_t", 0.0)) EXPECT_EQ(drop, 0);
}

TEST(TrainingOptions, EveryModelTakesDropout) {
  for (const DatasetFamily family : {DatasetFamily::kImagenet, DatasetFamily::kCifar10}) {
    for (const std::string& name : model_names(family)) {
      const nn::Graph graph = build_model(name, family_name(family), {.num_classes = 10, .dropout = 0.125});
      const std::vector<double> drops = drop_rates<nn::Dropout>(graph);
      for (const double drop : drops) EXPECT_EQ(drop, 0.125) << name;
      EXPECT_GE(drops.size(), 1U) << name;
    }
  }
}

TEST(TrainingOptions, BatchNormDecayOfAllLayers) {
  for (const nn::Node& node : build_model("resnet20", "cifar10", {.batch_norm_decay = 0.5}).nodes) {
    const auto* norm = std::get_if<nn::BatchNorm>(&node.op);
    EXPECT_TRUE(norm == nullptr || norm->decay == 0.5) << node.name;
  }
  EXPECT_THROW(build_model("vgg11", "imagenet", {.batch_norm_decay = 0.5}), core::Error);
  EXPECT_THROW(build_model("vgg11", "imagenet", {.stochastic_depth = 0.5}), core::Error);
}

}  // namespace
}  // namespace trainyard::models::training_options_test
