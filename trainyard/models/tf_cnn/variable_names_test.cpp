#include "trainyard/models/tf_cnn/variable_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models::variable_names_test {
namespace {

using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

std::map<std::string, nn::Shape> shapes_of(const nn::Graph& graph) {
  std::map<std::string, nn::Shape> shapes;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) shapes[parameter.name] = parameter.shape;
    for (const nn::BufferSpec& buffer : node.buffers) shapes[buffer.name] = buffer.shape;
  }
  return shapes;
}

nn::Shape in_tensorflow(const nn::Shape& shape, VariableLayout layout) {
  if (layout == VariableLayout::kKernel) return {shape.at(2), shape.at(3), shape.at(1), shape.at(0)};
  if (layout == VariableLayout::kMatrix) return {shape.at(1), shape.at(0)};
  return shape;
}

// "conv0/biases 32", sorted. Each parameter and buffer comes once.
std::vector<std::string> lines_of(const nn::Graph& graph) {
  std::map<std::string, nn::Shape> shapes = shapes_of(graph);
  std::vector<std::string> lines;
  for (const BenchmarkVariable& variable : benchmark_variables(graph)) {
    const nn::Shape shape = in_tensorflow(shapes.at(variable.parameter), variable.layout);
    lines.push_back(fmt::format("{} {}", variable.variable, fmt::join(shape, "x")));
    shapes.erase(variable.parameter);
  }
  EXPECT_TRUE(shapes.empty()) << shapes.begin()->first << " has no variable";
  std::sort(lines.begin(), lines.end());
  return lines;
}

// tools/golden/tf_cnn_benchmarks_variables.py asked tf_cnn_benchmarks itself.
TEST(BenchmarkVariables, AreThoseOfTfCnnBenchmarks) {
  std::istringstream golden(
      core::local_file_system().read_file(TRAINYARD_SOURCE_DIR "/trainyard/models/testdata/benchmark_variables.txt"));
  int count = 0;
  std::string name, dataset, middle, rest;
  size_t variables = 0;
  for (uint32_t checksum = 0;
       golden >> name >> dataset >> variables >> checksum && std::getline(golden >> std::ws, middle); ++count) {
    const std::vector<std::string> lines =
        lines_of(build_model(name, dataset, {.num_classes = find_dataset(dataset).num_classes}));
    ASSERT_EQ(lines.size(), variables) << name;
    EXPECT_EQ(lines[lines.size() / 2], middle) << name;
    EXPECT_EQ(core::crc32c(fmt::format("{}\n", fmt::join(lines, "\n"))), checksum) << name << " for " << dataset;
  }
  EXPECT_EQ(count, 29);
}

// The numbers of ssd300's layers are in their names, too.
TEST(BenchmarkVariables, OfSsd300AreInItsScopes) {
  const nn::Graph graph = build_model("ssd300", "coco", {.num_classes = 81});
  std::map<std::string, std::string> variables;
  for (const BenchmarkVariable& each : benchmark_variables(graph)) variables[each.parameter] = each.variable;
  EXPECT_EQ(variables.at("resnet34_backbone.conv0.weight"), "resnet34_backbone/conv0/conv2d/kernel");
  EXPECT_EQ(variables.at("resnet34_backbone.conv28.bn.running_var"),
            "resnet34_backbone/conv28/batchnorm28/moving_variance");
  EXPECT_EQ(variables.at("conv29.bias"), "conv29/biases");
  EXPECT_EQ(variables.at("conv50.weight"), "conv50/conv2d/kernel");
  std::map<std::string, std::string> official;
  for (const BenchmarkVariable& each : official_backbone_variables(graph)) official[each.parameter] = each.variable;
  EXPECT_EQ(official.size(), 29U * 5U);
  EXPECT_EQ(official.at("resnet34_backbone.conv0.weight"), "conv2d/kernel");
  EXPECT_EQ(official.at("resnet34_backbone.conv28.bn.weight"), "batch_normalization_28/gamma");
}

TEST(BenchmarkVariables, OfOtherLayersAreNotKnown) {
  for (const char* name : {"mobilenet", "nasnet"}) {
    try {
      static_cast<void>(benchmark_variables(build_model(name, "imagenet", {})));
      ADD_FAILURE() << name;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
  EXPECT_THAT(official_backbone_variables(build_model("resnet50", "imagenet", {})), IsEmpty());
}

TEST(BenchmarkVariables, TheFirstPoolingOfResNetsIsPaddedAsThere) {
  const auto padding = [](const nn::Graph& graph) { return std::get<nn::Pool>(graph.node("maxpool").op).padding; };
  const nn::Graph ours = build_model("resnet50_v1.5", "imagenet", {});
  EXPECT_EQ(padding(ours), nn::Padding::all(1));
  const nn::Graph theirs = as_in_tf_cnn_benchmarks(ours);
  EXPECT_EQ(padding(theirs), nn::Padding::same());
  EXPECT_EQ(theirs.node("maxpool").shape, ours.node("maxpool").shape);
  EXPECT_EQ(padding(as_in_tf_cnn_benchmarks(build_model("resnet50", "imagenet", {}))), nn::Padding::same());
}

TEST(BenchmarkVariables, LayersBehindAFlattenedImageAreNamed) {
  const auto layers = [](const char* name) { return layers_of_flattened_images(build_model(name, "imagenet", {})); };
  EXPECT_THAT(layers("vgg11"), ElementsAre("affine0"));
  EXPECT_THAT(layers("lenet"), ElementsAre("fc1"));
  EXPECT_THAT(layers("resnet50"), IsEmpty());
  EXPECT_THAT(layers("googlenet"), IsEmpty());
}

}  // namespace
}  // namespace trainyard::models::variable_names_test
