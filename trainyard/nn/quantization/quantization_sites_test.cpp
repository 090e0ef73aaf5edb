#include "trainyard/nn/quantization/quantization_sites.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/nn/quantization/fold_batch_norms.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::nn::quantization_sites_test {
namespace {

using namespace quantization_testing;
using ::testing::ElementsAre, ::testing::HasSubstr;

std::vector<std::string> layers_of(const Graph& graph, const QuantizationSites& sites) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (sites.layers[static_cast<size_t>(node.id)]) names.push_back(node.name);
  }
  return names;
}

// "node <- node whose range it has" of those with a scale.
std::vector<std::string> scales_of(const Graph& graph, const QuantizationSites& sites) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    const int range = sites.range_of[static_cast<size_t>(node.id)];
    if (range < 0) continue;
    const std::string& of = graph.nodes[static_cast<size_t>(range)].name;
    names.push_back(of == node.name ? of : node.name + " <- " + of);
  }
  return names;
}

Graph folded(const Graph& graph) {
  return fold_batch_norms(graph, values_for(graph)).graph;
}

TEST(QuantizationSites, AResidualNetworkIsIntegersFromTheImagesToTheLogits) {
  const Graph graph = folded(residual_network());
  const QuantizationSites sites = find_sites(graph);
  EXPECT_THAT(layers_of(graph, sites), ElementsAre("conv1", "conv2", "conv3", "conv4", "conv5", "shortcut", "fc"));
  // What is fused with a convolution has no scale of its own; the logits have none. The main branch is added to the
  // shortcut in 8 bits.
  EXPECT_THAT(scales_of(graph, sites), ElementsAre("input", "conv1_relu", "pool1 <- conv1_relu", "conv2_relu",
                                                   "sum1_relu", "conv4_relu", "conv5", "sum2_relu", "pool"));
  EXPECT_TRUE(sites.in_float.empty());
}

TEST(QuantizationSites, ATransformerKeepsItsResidualSumsInFloat) {
  const Graph graph = folded(transformer());
  const QuantizationSites sites = find_sites(graph);
  EXPECT_THAT(layers_of(graph, sites), ElementsAre("patches", "block0_qkv", "block0_out", "block0_up", "block0_down",
                                                   "block1_qkv", "block1_out", "block1_up", "block1_down", "head"));
  EXPECT_THAT(scales_of(graph, sites),
              ElementsAre("input", "block0_norm1", "block0_attention", "block0_norm2", "block0_gelu", "block1_norm1",
                          "block1_attention", "block1_norm2", "block1_gelu", "pool"));
  EXPECT_THAT(sites.in_float.at("block0_attention"), HasSubstr("softmax"));
  EXPECT_THAT(sites.in_float.at("norm"), HasSubstr("normalization"));
  EXPECT_THAT(sites.in_float.at("pool"), HasSubstr("inputs are in float"));
  EXPECT_THAT(sites.in_float.at("positions"), HasSubstr("no kernel"));
}

TEST(QuantizationSites, MovedValuesKeepTheirScaleAndConcatenatedOnesShareIt) {
  GraphBuilder b({.image = {4, 8, 8}, .name = "net"});
  auto left = b.activation("left_relu", b.convolution("left", b.input(), {.out_channels = 4}));
  auto right = b.activation("right_relu", b.convolution("right", b.input(), {.out_channels = 4}));
  auto both = b.channel_shuffle("shuffle", b.concat("concat", {left, b.max_pool("pool", right, {.kernel = 1})}), 2);
  auto x = b.convolution("conv", both, {.out_channels = 4});
  const Graph graph = b.build(b.linear("fc", b.flatten("flatten", x), {.out_features = 2}));
  EXPECT_THAT(scales_of(graph, find_sites(graph)),
              ElementsAre("input", "left_relu <- concat", "right_relu", "pool <- right_relu", "concat",
                          "shuffle <- concat", "conv", "flatten <- conv"));
}

TEST(QuantizationSites, SqueezeAndExcitationScalesIntegersByFloats) {
  GraphBuilder b({.image = {4, 8, 8}, .name = "net"});
  auto x = b.activation("silu", b.convolution("conv", b.input(), {.out_channels = 8}), Activation::Function::kSilu);
  auto s = b.linear("squeeze", b.global_average_pool("pool", x), {.out_features = 8});
  x = b.multiply("scaled", x, b.activation("sigmoid", s, Activation::Function::kSigmoid));
  x = b.convolution("project", x, {.out_channels = 8});
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool2", x), {.out_features = 2}));
  const QuantizationSites sites = find_sites(graph);
  EXPECT_THAT(scales_of(graph, sites), ElementsAre("input", "silu", "pool", "scaled", "project", "pool2"));
  EXPECT_THAT(sites.in_float.at("sigmoid"), HasSubstr("no layer reads"));
}

TEST(QuantizationSites, NormalizationsAreFloatIslands) {
  GraphBuilder b({.image = {4, 8, 8}, .name = "net"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4});
  x = b.activation("relu", b.batch_norm("norm", b.local_response_norm("lrn", x, {})));
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 2}));
  const QuantizationSites sites = find_sites(graph);
  EXPECT_THAT(layers_of(graph, sites), ElementsAre("conv", "fc"));
  EXPECT_THAT(scales_of(graph, sites), ElementsAre("input", "pool"));
  EXPECT_THAT(sites.in_float.at("lrn"), HasSubstr("normalization"));
  EXPECT_THAT(sites.in_float.at("norm"), HasSubstr("follows no convolution"));
}

TEST(QuantizationSites, WhatIsAlwaysZeroStaysInFloat) {
  const Graph graph = folded(residual_network());
  const int zero = graph.node("sum1_relu").id;
  const QuantizationSites sites = find_sites(graph, {{zero, "is zero for all calibration images"}});
  EXPECT_THAT(layers_of(graph, sites), ElementsAre("conv1", "conv2", "conv3", "conv5", "fc"));
  EXPECT_THAT(sites.in_float.at("conv4"), HasSubstr("'sum1_relu' is zero for all"));
  EXPECT_EQ(sites.range_of[static_cast<size_t>(zero)], -1);
}

TEST(QuantizationSites, SumsThatAreTooLongStayInFloat) {
  GraphBuilder b({.image = {70, 32, 32}, .name = "net"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flatten", b.input()), {.out_features = 2}));
  EXPECT_THAT(find_sites(graph).in_float.at("fc"), HasSubstr("too long"));
}

// The first unit of the graph is a float island as any other.
TEST(QuantizationSites, WhatReadsAFirstNodeInFloatStaysInFloat) {
  GraphBuilder b({.image = {4, 8, 8}, .name = "net"});
  const auto x = b.global_average_pool("pool", b.local_response_norm("lrn", b.input(), {}));
  const Graph graph = b.build(b.linear("fc", x, {.out_features = 2}));
  const QuantizationSites sites = find_sites(graph);
  EXPECT_THAT(layers_of(graph, sites), ElementsAre("fc"));
  EXPECT_THAT(scales_of(graph, sites), ElementsAre("pool"));
  ASSERT_EQ(sites.in_float.size(), 2U);
  EXPECT_EQ(sites.in_float.at("lrn"), "a normalization: its statistics need the precision of floats");
  EXPECT_EQ(sites.in_float.at("pool"), "its inputs are in float");
}

}  // namespace
}  // namespace trainyard::nn::quantization_sites_test
