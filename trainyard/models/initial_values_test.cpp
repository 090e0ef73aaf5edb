// What golden networks do not show, because they run on drawn weights without randomness: initial values, rates of
// dropout and of stochastic depth, the decay of running statistics, and recipes, as the originals have them.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/testing/drop_rates.h"

namespace trainyard::models::initial_values_test {
namespace {

using Fan = nn::Initializer::Fan;
using nn::Initializer;

// With 1,000 classes, and auxiliary classifiers where the model has some.
nn::Graph whole_model(const std::string& name, const char* dataset = "imagenet") {
  const bool has_heads = !find_model(name, dataset).auxiliary.empty();
  return build_model(name, dataset, {.num_classes = 1000, .auxiliary_heads = has_heads});
}

struct Start {
  const char* parameter;
  Initializer init;
};
struct Model {
  const char *name, *dataset;
  std::vector<Start> starts;
};

void expect_starts(const Model& model) {
  SCOPED_TRACE(model.name);
  const nn::Graph graph = whole_model(model.name, model.dataset);
  for (const Start& start : model.starts) {
    bool found = false;
    for (const nn::Node& node : graph.nodes) {
      for (const nn::ParameterSpec& spec : node.parameters) {
        if (spec.name != start.parameter) continue;
        found = true;
        EXPECT_EQ(spec.init.kind, start.init.kind) << spec.name;
        EXPECT_EQ(spec.init.fan, start.init.fan) << spec.name;
        EXPECT_NEAR(spec.init.value, start.init.value, 1e-12 * start.init.value) << spec.name;
      }
    }
    EXPECT_TRUE(found) << start.parameter;
  }
}

// The constructors of torchvision's models, and torch.nn's own where they set nothing.
TEST(InitialValues, OfTorchvisionsModelsAreTheirOwn) {
  const std::string layer = "encoder.layers.encoder_layer_";
  const std::string joined = layer + "0.self_attention.in_proj_weight", hidden = layer + "0.mlp.0.weight",
                    bias = layer + "0.mlp.3.bias", last_hidden = layer + "11.mlp.0.weight",
                    last_bias = layer + "11.mlp.3.bias";
  const double xavier = std::sqrt(6.0 / (768 + 3072));
  for (const Model& model : std::vector<Model>{
           {"torchvision/resnet50",
            "imagenet",
            {{"conv1.weight", Initializer::he_normal(Fan::kOut)},
             {"fc.weight", Initializer::he_uniform()},
             {"fc.bias", Initializer::uniform(1 / std::sqrt(2048.0))}}},
           {"torchvision/alexnet",
            "imagenet",
            {{"features.0.weight", Initializer::he_uniform()},
             {"features.0.bias", Initializer::uniform(1 / std::sqrt(3.0 * 11 * 11))},
             {"features.3.bias", Initializer::uniform(1 / std::sqrt(64.0 * 5 * 5))},
             {"classifier.1.bias", Initializer::uniform(1 / std::sqrt(256.0 * 6 * 6))}}},
           {"torchvision/vgg16",
            "imagenet",
            {{"features.0.weight", Initializer::he_normal(Fan::kOut)},
             {"classifier.0.weight", Initializer::normal(0.01)},
             {"classifier.6.weight", Initializer::normal(0.01)}}},
           {"torchvision/densenet121",
            "imagenet",
            {{"features.conv0.weight", Initializer::he_normal(Fan::kIn)},
             {"classifier.weight", Initializer::he_uniform()},
             {"classifier.bias", Initializer::zeros()}}},
           {"torchvision/squeezenet1_1",
            "imagenet",
            {{"features.0.weight", {Initializer::Kind::kHeUniform, 6.0}},
             {"classifier.1.weight", Initializer::normal(0.01)}}},
           {"torchvision/shufflenet_v2_x1_0", "imagenet", {{"conv1.0.weight", Initializer::he_uniform()}}},
           {"torchvision/mobilenet_v2", "imagenet", {{"classifier.1.weight", Initializer::normal(0.01)}}},
           {"torchvision/mobilenet_v3_small", "imagenet", {{"classifier.0.weight", Initializer::normal(0.01)}}},
           {"torchvision/efficientnet_b0",
            "imagenet",
            {{"classifier.1.weight", Initializer::uniform(1 / std::sqrt(1000.0))}}},
           {"torchvision/mnasnet1_0",
            "imagenet",
            {{"classifier.1.weight", Initializer::uniform(std::sqrt(3.0 / 1000))}}},
           {"torchvision/googlenet",
            "imagenet",
            {{"conv1.conv.weight", Initializer::normal(0.01)},
             {"aux1.fc1.weight", Initializer::normal(0.01)},
             {"aux1.fc2.bias", Initializer::uniform(1 / std::sqrt(1024.0))},
             {"fc.weight", Initializer::normal(0.01)}}},
           {"torchvision/inception_v3",
            "imagenet",
            {{"Conv2d_1a_3x3.conv.weight", Initializer::normal(0.1)},
             {"AuxLogits.fc.weight", Initializer::normal(0.001)},
             {"fc.weight", Initializer::normal(0.1)},
             {"fc.bias", Initializer::uniform(1 / std::sqrt(2048.0))}}},
           {"torchvision/convnext_tiny",
            "imagenet",
            {{"features.0.0.weight", Initializer::normal(0.02)},
             {"features.1.0.layer_scale", Initializer::constant(1e-6)},
             {"classifier.2.weight", Initializer::normal(0.02)}}},
           {"ssd300_vgg16",
            "coco",
            {{"backbone.features.0.weight", Initializer::he_normal(Fan::kOut)},
             {"backbone.extra.0.7.1.weight", Initializer::uniform(std::sqrt(6.0 / (9 * (512 + 1024))))},
             {"backbone.extra.1.0.weight", Initializer::uniform(std::sqrt(6.0 / (1024 + 256)))},
             {"head.regression_head.module_list.0.weight", Initializer::uniform(std::sqrt(6.0 / (9 * (512 + 16))))}}},
           {"torchvision/swin_t",
            "imagenet",
            {{"features.0.0.weight", Initializer::he_uniform()},
             {"features.0.0.bias", Initializer::uniform(1 / std::sqrt(3.0 * 4 * 4))},
             {"features.1.0.attn.qkv.weight", Initializer::normal(0.02)},
             {"features.1.0.attn.relative_position_bias_table", Initializer::normal(0.02)},
             {"features.2.reduction.weight", Initializer::normal(0.02)},
             {"head.weight", Initializer::normal(0.02)}}},
           {"torchvision/vit_b_16",
            "imagenet",
            {{"conv_proj.weight", Initializer::normal(std::sqrt(1 / (3.0 * 16 * 16)))},
             {"class_token", Initializer::zeros()},
             {"encoder.pos_embedding", Initializer::normal(0.02)},
             {joined.c_str(), Initializer::uniform(std::sqrt(6.0 / (768 + 3 * 768)))},
             {hidden.c_str(), Initializer::uniform(xavier)},
             {bias.c_str(), Initializer::normal(1e-6)},
             {last_hidden.c_str(), Initializer::uniform(xavier)},
             {last_bias.c_str(), Initializer::normal(1e-6)},
             {"heads.head.weight", Initializer::zeros()}}}}) {
    expect_starts(model);
  }
}

// Layers inside of blocks, whose beginnings are written apart from those of the first and the last layers.
TEST(InitialValues, OfLayersInsideOfBlocksAreTorchvisions) {
  for (const Model& model : std::vector<Model>{
           {"torchvision/vit_b_16",
            "imagenet",
            {{"encoder.layers.encoder_layer_0.self_attention.out_proj.weight", Initializer::he_uniform()},
             {"encoder.layers.encoder_layer_0.self_attention.out_proj.bias", Initializer::zeros()},
             {"encoder.layers.encoder_layer_0.mlp.0.bias", Initializer::normal(1e-6)},
             {"encoder.layers.encoder_layer_11.self_attention.out_proj.weight", Initializer::he_uniform()},
             {"encoder.layers.encoder_layer_11.self_attention.out_proj.bias", Initializer::zeros()},
             {"encoder.layers.encoder_layer_11.mlp.0.bias", Initializer::normal(1e-6)},
             {"encoder.layers.encoder_layer_11.mlp.3.weight", Initializer::uniform(std::sqrt(6.0 / (768 + 3072)))},
             {"conv_proj.bias", Initializer::zeros()}}},
           {"torchvision/swin_t",
            "imagenet",
            {{"features.1.0.attn.proj.weight", Initializer::normal(0.02)},
             {"features.1.0.attn.proj.bias", Initializer::zeros()},
             {"features.1.0.mlp.0.weight", Initializer::normal(0.02)},
             {"features.1.0.mlp.0.bias", Initializer::zeros()},
             {"features.1.0.mlp.3.weight", Initializer::normal(0.02)}}},
           {"torchvision/convnext_tiny",
            "imagenet",
            {{"features.1.0.block.0.weight", Initializer::normal(0.02)},
             {"features.1.0.block.0.bias", Initializer::zeros()},
             {"features.1.0.block.3.weight", Initializer::normal(0.02)},
             {"features.1.0.block.5.weight", Initializer::normal(0.02)},
             {"features.2.1.weight", Initializer::normal(0.02)}}},
           {"torchvision/regnet_y_400mf",
            "imagenet",
            {{"trunk_output.block1.block1-0.f.se.fc1.weight", Initializer::he_normal(Fan::kOut)},
             {"trunk_output.block1.block1-0.f.se.fc1.bias", Initializer::uniform(1 / std::sqrt(48.0))},
             {"trunk_output.block1.block1-0.f.se.fc2.bias", Initializer::uniform(1 / std::sqrt(8.0))}}},
           {"torchvision/mobilenet_v3_small",
            "imagenet",
            {{"features.1.block.1.fc1.bias", Initializer::zeros()},
             {"features.1.block.1.fc2.bias", Initializer::zeros()}}},
           {"torchvision/efficientnet_b0",
            "imagenet",
            {{"features.1.0.block.1.fc1.bias", Initializer::zeros()},
             {"features.1.0.block.1.fc2.weight", Initializer::he_normal(Fan::kOut)}}}}) {
    expect_starts(model);
  }
}

// tf_cnn_benchmarks' stddev= and bias=, TensorFlow's variance scaling where it sets nothing, and Keras' defaults.
TEST(InitialValues, OfModelsFromTensorFlowAreTheirOwn) {
  for (const Model& model : std::vector<Model>{
           {"alexnet",
            "imagenet",
            {{"conv1.weight", Initializer::variance_scaling(1, Fan::kIn)},
             {"conv1.bias", Initializer::zeros()},
             {"affine0.weight", Initializer::truncated_normal(std::sqrt(2.0 / (256 * 6 * 6)))},
             {"affine2.weight", Initializer::truncated_normal(std::sqrt(1.0 / 4096))}}},
           {"alexnet",
            "cifar10",
            {{"conv0.weight", Initializer::truncated_normal(0.05)},
             {"conv0.bias", Initializer::zeros()},
             {"conv1.weight", Initializer::truncated_normal(0.05)},
             {"conv1.bias", Initializer::constant(0.1)},
             {"affine0.weight", Initializer::truncated_normal(0.04)},
             {"affine0.bias", Initializer::constant(0.1)},
             {"affine1.weight", Initializer::truncated_normal(0.04)},
             {"affine1.bias", Initializer::constant(0.1)},
             {"affine2.weight", Initializer::truncated_normal(std::sqrt(1.0 / 192))},
             {"affine2.bias", Initializer::zeros()}}},
           {"mobilenet",
            "imagenet",
            {{"conv.weight", Initializer::truncated_normal(0.09)},
             {"expanded_conv0.depthwise.weight", Initializer::truncated_normal(0.09)},
             {"logits.weight", Initializer::truncated_normal(0.09)}}},
           {"lenet",
            "imagenet",
            {{"conv1.weight", Initializer::variance_scaling(1, Fan::kIn)},
             {"fc1.weight", Initializer::truncated_normal(std::sqrt(2.0 / (64 * 7 * 7)))},
             {"fc2.weight", Initializer::truncated_normal(std::sqrt(1.0 / 512))}}},
           {"densenet40_k12",
            "cifar10",
            {{"conv0.weight", Initializer::variance_scaling(1, Fan::kIn)},
             {"block1.0.conv.weight", Initializer::truncated_normal(std::sqrt(2.0 / 9 / 12))},
             {"block3.11.conv.weight", Initializer::truncated_normal(std::sqrt(2.0 / 9 / 12))},
             {"transition1.conv.weight", Initializer::truncated_normal(std::sqrt(2.0 / 9 / (16 + 12 * 12)))},
             {"fc.weight", Initializer::truncated_normal(std::sqrt(1.0 / (16 + 36 * 12)))}}},
           {"nasnet",
            "imagenet",
            {{"conv0.weight", Initializer::variance_scaling(2, Fan::kOut)},
             {"cell_0.comb_iter_0.left.separable_1.depthwise.weight", Initializer::variance_scaling(2, Fan::kIn)},
             {"cell_0.comb_iter_0.left.separable_1.pointwise.weight", Initializer::variance_scaling(2, Fan::kOut)},
             {"fc.weight", Initializer::truncated_normal(std::sqrt(1.0 / 1056))}}},
           {"ssd300",
            "coco",
            {{"resnet34_backbone.conv0.weight", Initializer::variance_scaling(1, Fan::kIn)},
             {"conv29.weight", Initializer::uniform(std::sqrt(6.0 / (256 + 256)))},
             {"conv30.weight", Initializer::uniform(std::sqrt(6.0 / (9 * (256 + 512))))},
             {"conv39.weight", Initializer::uniform(std::sqrt(6.0 / (9 * (256 + 16))))}}},
           {"official_resnet50", "imagenet", {{"fc.weight", Initializer::uniform(std::sqrt(6.0 / (2048 + 1000)))}}},
           {"dali/resnet50",
            "imagenet",
            {{"conv1.weight", Initializer::variance_scaling(2, Fan::kIn)},
             {"fc1000.weight", Initializer::normal(0.01)}}}}) {
    expect_starts(model);
  }
}

// Rates of dropout, in the order of layers.
TEST(InitialValues, DropoutHasTheRatesOfTheOriginals) {
  struct Case {
    const char* model;
    std::vector<double> drops;
  };
  for (const Case& tested : std::vector<Case>{{"torchvision/alexnet", {0.5, 0.5}},
                                              {"torchvision/vgg16", {0.5, 0.5}},
                                              {"torchvision/squeezenet1_1", {0.5}},
                                              {"torchvision/googlenet", {0.7, 0.7, 0.2}},
                                              {"torchvision/inception_v3", {0.5}},
                                              {"torchvision/mobilenet_v2", {0.2}},
                                              {"torchvision/mobilenet_v3_large", {0.2}},
                                              {"torchvision/mnasnet1_0", {0.2}},
                                              {"torchvision/efficientnet_b0", {0.2}},
                                              {"torchvision/efficientnet_b1", {0.2}},
                                              {"torchvision/efficientnet_b2", {0.3}},
                                              {"torchvision/efficientnet_b3", {0.3}},
                                              {"torchvision/efficientnet_b4", {0.4}},
                                              {"torchvision/efficientnet_v2_s", {0.2}},
                                              {"alexnet", {0.5, 0.5}},
                                              {"overfeat", {0.5, 0.5}},
                                              {"vgg11", {0.5, 0.5}},
                                              {"inception4", {0.2}},
                                              {"mobilenet", {0.2}},
                                              {"nasnet", {0.5}},
                                              {"nasnetlarge", {0.5}}}) {
    const std::vector<double> drops = drop_rates<nn::Dropout>(whole_model(tested.model));
    EXPECT_THAT(drops, ::testing::Pointwise(::testing::DoubleEq(), tested.drops)) << tested.model;
  }
}

// torchvision's stochastic_depth_prob and slim's drop_path_keep_prob: of the block or cell that is left out most often.
TEST(InitialValues, StochasticDepthHasTheRatesOfTheOriginals) {
  struct Case {
    const char *model, *dataset;
    double most;
  };
  for (const Case& tested :
       {Case{"torchvision/convnext_tiny", "imagenet", 0.1}, Case{"torchvision/convnext_small", "imagenet", 0.4},
        Case{"torchvision/convnext_base", "imagenet", 0.5}, Case{"torchvision/swin_t", "imagenet", 0.2},
        Case{"nasnetlarge", "imagenet", 0.3}, Case{"nasnet", "cifar10", 0.4}, Case{"nasnet", "imagenet", 0}}) {
    double most = 0;
    for (const double drop : drop_rates<nn::StochasticDepth>(whole_model(tested.model, tested.dataset))) {
      most = std::max(most, drop);
    }
    EXPECT_DOUBLE_EQ(most, tested.most) << tested.model << " " << tested.dataset;
  }
}

// slim's drop path rises by the same amount from cell to cell, the stem's and the reducing ones among them.
TEST(InitialValues, DropPathRisesFromCellToCell) {
  struct Case {
    const char *model, *dataset;
    int cells;
    double most;
  };
  for (const Case& tested :
       {Case{"nasnet", "cifar10", 18 + 2, 0.4}, Case{"nasnetlarge", "imagenet", 18 + 2 + 2, 0.3}}) {
    std::vector<double> drops = drop_rates<nn::StochasticDepth>(whole_model(tested.model, tested.dataset));
    drops.erase(std::unique(drops.begin(), drops.end()), drops.end());  // a cell's layers have its rate
    ASSERT_EQ(drops.size(), static_cast<size_t>(tested.cells)) << tested.model;
    for (int cell = 0; cell < tested.cells; ++cell) {
      EXPECT_DOUBLE_EQ(drops[static_cast<size_t>(cell)], tested.most * (cell + 1) / tested.cells) << tested.model;
    }
  }
}

// In pixels, and images a device, where nothing else is said.
TEST(InitialValues, SizesOfImagesAndBatchesAreThoseOfTheOriginals) {
  struct Case {
    const char *model, *dataset;
    int64_t image_size, batch_size;
  };
  for (const Case& tested : {Case{"torchvision/efficientnet_b0", "imagenet", 224, 32},
                             Case{"torchvision/efficientnet_b1", "imagenet", 240, 32},
                             Case{"torchvision/efficientnet_b2", "imagenet", 288, 32},
                             Case{"torchvision/efficientnet_b3", "imagenet", 300, 32},
                             Case{"torchvision/efficientnet_b4", "imagenet", 380, 32},
                             Case{"torchvision/efficientnet_v2_s", "imagenet", 384, 32},
                             Case{"torchvision/inception_v3", "imagenet", 299, 32},
                             Case{"torchvision/resnet18", "imagenet", 224, 32},
                             Case{"ssd300_vgg16", "coco", 300, 4},
                             Case{"keras/inception_v3", "imagenet", 299, 32},
                             Case{"keras/vgg16", "imagenet", 224, 32},
                             Case{"dali/resnet50", "imagenet", 224, 64},
                             Case{"paddle/resnet50", "imagenet", 224, 32},
                             Case{"alexnet", "imagenet", 227, 512},
                             Case{"googlenet", "imagenet", 224, 32},
                             Case{"inception3", "imagenet", 299, 32},
                             Case{"inception4", "imagenet", 299, 32},
                             Case{"lenet", "imagenet", 28, 32},
                             Case{"mobilenet", "imagenet", 224, 32},
                             Case{"nasnet", "imagenet", 224, 32},
                             Case{"nasnetlarge", "imagenet", 331, 16},
                             Case{"nasnet", "cifar10", 32, 32},
                             Case{"vgg11", "imagenet", 224, 64},
                             Case{"vgg16", "imagenet", 224, 64},
                             Case{"vgg19", "imagenet", 224, 64},
                             Case{"resnet50", "imagenet", 224, 64},
                             Case{"resnet50_v1.5", "imagenet", 224, 64},
                             Case{"resnet50_v2", "imagenet", 224, 64},
                             Case{"resnet152", "imagenet", 224, 32},
                             Case{"resnet101_v2", "imagenet", 224, 32},
                             Case{"official_resnet18", "imagenet", 224, 32},
                             Case{"resnet20", "cifar10", 32, 128},
                             Case{"resnet110_v2", "cifar10", 32, 128},
                             Case{"densenet40_k12", "cifar10", 32, 64},
                             Case{"vit_cifar", "cifar10", 32, 32}}) {
    const ModelInfo& info = find_model(tested.model, tested.dataset);
    EXPECT_EQ(info.image_size, tested.image_size) << tested.model << " " << tested.dataset;
    EXPECT_EQ(info.default_batch_size, tested.batch_size) << tested.model << " " << tested.dataset;
  }
}

TEST(InitialValues, RunningStatisticsDecayAsInTheOriginals) {
  struct Case {
    const char *model, *norm;
    double decay;
  };
  for (const Case& tested :
       {Case{"torchvision/resnet50", "bn1", 0.9}, Case{"torchvision/mobilenet_v3_small", "features.0.1", 0.99},
        Case{"torchvision/mnasnet1_0", "layers.1", 0.9997}, Case{"torchvision/inception_v3", "Conv2d_1a_3x3.bn", 0.9},
        Case{"dali/resnet50", "bn_conv1", 0.9}, Case{"mobilenet", "conv.bn", 0.997},
        Case{"official_resnet50", "bn1", 0.997}, Case{"official_resnet50_v2", "bn_last", 0.997},
        Case{"inception3", "conv0.bn", 0.999}}) {
    const nn::Graph graph = whole_model(tested.model);
    EXPECT_EQ(std::get<nn::BatchNorm>(graph.node(tested.norm).op).decay, tested.decay) << tested.model;
  }
}

// All norms of all models: PyTorch's 0.9 where nothing else is listed.
TEST(InitialValues, EachNormDecaysAsTheOthersOfItsModel) {
  const auto expected = [](const std::string& name, DatasetFamily family) -> std::set<double> {
    if (name == "airbench94") return {0.6};
    if (name.starts_with("mobilenet_v3_")) return {0.99};
    if (name == "mnasnet1_0") return {0.9997};
    if (name == "keras/mobilenet_v2") return {0.999};
    if (name.starts_with("keras/")) return {0.99};
    if (name == "mobilenet" || name == "ssd300" || name.starts_with("official_")) return {0.997};
    if (name.starts_with("nasnet") && family == DatasetFamily::kImagenet) return {0.9997};
    if (name == "inception3" || name == "inception4") return {0.999};
    // tf_cnn_benchmarks' second version sets nothing for the norms in front of its blocks.
    if (name.starts_with("resnet") && name.ends_with("_v2")) return {0.9, 0.999};
    return {0.9};
  };
  int models = 0;
  for (const DatasetFamily family : kDatasetFamilies) {
    for (const std::string& name : model_names(family)) {
      if (name == "tiny_of_the_test") continue;  // registered by another test of this program
      std::set<double> decays;
      for (const nn::Node& node : build_model(name, family_name(family), {.num_classes = 10}).nodes) {
        if (const auto* const norm = std::get_if<nn::BatchNorm>(&node.op)) decays.insert(norm->decay);
      }
      if (decays.empty()) continue;
      ++models;
      EXPECT_EQ(decays, expected(name, family)) << name << " for " << family_name(family);
    }
  }
  EXPECT_GT(models, 60);
}

TEST(InitialValues, RecipesAreThoseOfTheOriginals) {
  // torchvision's references: a tenth each 30 epochs, 0.01 without batch norm.
  for (const char* name : {"alexnet", "vgg11", "vgg16", "squeezenet1_1", "convnext_tiny", "swin_t", "vit_b_16"}) {
    EXPECT_EQ(find_model(std::string("torchvision/") + name, "imagenet").schedule.learning_rate, 0.01) << name;
  }
  for (const char* name : {"resnet18", "mobilenet_v2", "densenet121", "inception_v3", "efficientnet_b0"}) {
    EXPECT_EQ(find_model(std::string("torchvision/") + name, "imagenet").schedule.learning_rate, 0.1) << name;
  }
  // 0.002 for 8 times 4 images; and tf_cnn_benchmarks' AlexNet for CIFAR-10, a tenth each 100 epochs.
  const DefaultSchedule& ssd = find_model("ssd300_vgg16", "coco").schedule;
  EXPECT_EQ(ssd.learning_rate, 0.002);
  EXPECT_EQ(ssd.batch_size, 32);
  EXPECT_THAT(ssd.boundary_epochs, ::testing::ElementsAre(80, 110));
  EXPECT_THAT(ssd.factors, ::testing::ElementsAre(1, 0.1, 0.01));
  const DefaultSchedule& alexnet = find_model("alexnet", "cifar10").schedule;
  EXPECT_EQ(alexnet.learning_rate, 0.1);
  EXPECT_EQ(alexnet.batch_size, 0);
  EXPECT_THAT(alexnet.boundary_epochs, ::testing::ElementsAre(100, 200, 300, 400));
  EXPECT_THAT(alexnet.factors, ::testing::ElementsAre(1, 0.1, 0.01, 0.001, 0.0001));
  const DefaultSchedule& dali = find_model("dali/resnet50", "imagenet").schedule;
  EXPECT_EQ(dali.learning_rate, 0.1);
  EXPECT_EQ(dali.batch_size, 256);
  EXPECT_EQ(dali.warmup_epochs, 5);
  EXPECT_THAT(dali.boundary_epochs, ::testing::ElementsAre(30, 60, 80));
  EXPECT_THAT(dali.factors, ::testing::ElementsAre(1, 0.1, 0.01, 0.001));
}

}  // namespace
}  // namespace trainyard::models::initial_values_test
