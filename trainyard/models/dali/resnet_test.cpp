// The layers of DALI's ResNet-N example, resnet_model.py, by their names, options and inputs.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models::dali::resnet_test {
namespace {

// "conv1: convolution 64 x 7x7 / 2, pad 3, of input"
std::vector<std::string> lines_of(const nn::Graph& graph) {
  std::vector<std::string> lines;
  for (const nn::Node& node : graph.nodes) {
    std::vector<std::string> inputs;
    for (const int input : node.inputs) inputs.push_back(graph.nodes[static_cast<size_t>(input)].name);
    lines.push_back(
        fmt::format("{}: {} {}, of {}", node.name, node.kind(), node.description(), fmt::join(inputs, " and ")));
  }
  return lines;
}

TEST(DaliResnet, BeginsWithTheLayersOfTheExample) {
  const nn::Graph graph = build_model("dali/resnet50", "imagenet", {.num_classes = 10});
  std::vector<std::string> lines = lines_of(graph);
  lines.resize(18);
  const std::string norm = "batch_norm epsilon 1e-05, decay 0.9, of ";
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "input: input , of ", "conv1: convolution 64 x 7x7 / 2, pad 3, of input", "bn_conv1: " + norm + "conv1",
          "relu_conv1: activation relu, of bn_conv1", "max_pooling: max_pool 3x3 / 2, same, of relu_conv1",
          "res2a_branch2a: convolution 64 x 1x1, same, of max_pooling", "bn2a_branch2a: " + norm + "res2a_branch2a",
          "res2a_relu2a: activation relu, of bn2a_branch2a",
          "res2a_branch2b: convolution 64 x 3x3, same, of res2a_relu2a", "bn2a_branch2b: " + norm + "res2a_branch2b",
          "res2a_relu2b: activation relu, of bn2a_branch2b",
          "res2a_branch2c: convolution 256 x 1x1, same, of res2a_relu2b", "bn2a_branch2c: " + norm + "res2a_branch2c",
          "res2a_branch1: convolution 256 x 1x1, same, of max_pooling", "bn2a_branch1: " + norm + "res2a_branch1",
          "res2a: add , of bn2a_branch2c and bn2a_branch1", "res2a_relu: activation relu, of res2a",
          "res2b_branch2a: convolution 64 x 1x1, same, of res2a_relu"}));
}

// The first block of a stage projects, and halves the image in its 3x3 convolution, except in the first stage.
TEST(DaliResnet, StagesHalveTheImage) {
  const nn::Graph graph = build_model("dali/resnet50", "imagenet", {.num_classes = 10});
  EXPECT_EQ(graph.node("res2c_relu").shape, (nn::Shape{256, 56, 56}));
  EXPECT_EQ(graph.node("res3a_branch2a").description(), "128 x 1x1, same");
  EXPECT_EQ(graph.node("res3a_branch2b").description(), "128 x 3x3 / 2, same");
  EXPECT_EQ(graph.node("res3a_branch1").description(), "512 x 1x1 / 2, same");
  EXPECT_EQ(graph.node("res3d_relu").shape, (nn::Shape{512, 28, 28}));
  EXPECT_EQ(graph.node("res4f_relu").shape, (nn::Shape{1024, 14, 14}));
  EXPECT_EQ(graph.node("res5b_branch2b").description(), "512 x 3x3, same");
  EXPECT_EQ(graph.node("res5c_relu").shape, (nn::Shape{2048, 7, 7}));
  int projections = 0;
  for (const nn::Node& node : graph.nodes) projections += node.name.ends_with("_branch1") ? 1 : 0;
  EXPECT_EQ(projections, 2 * 4) << "a convolution and its norm in each stage";
  const std::vector<std::string> lines = lines_of(graph);
  EXPECT_EQ(lines[lines.size() - 2], "reduce_mean: global_average_pool , of res5c_relu");
  EXPECT_EQ(lines.back(), "fc1000: linear 10, bias, of reduce_mean");
}

TEST(DaliResnet, TrivialIsItsBeginning) {
  EXPECT_EQ(lines_of(build_model("dali/trivial", "imagenet", {.num_classes = 10})),
            (std::vector<std::string>{"input: input , of ", "conv1: convolution 64 x 7x7 / 2, pad 3, of input",
                                      "bn_conv1: batch_norm epsilon 1e-05, decay 0.9, of conv1",
                                      "reduce_mean: global_average_pool , of bn_conv1",
                                      "fc1000: linear 10, bias, of reduce_mean"}));
}

}  // namespace
}  // namespace trainyard::models::dali::resnet_test
