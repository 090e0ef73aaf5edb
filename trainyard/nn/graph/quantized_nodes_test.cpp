// What a Quantization must fit: scales of nodes that are there, as many as channels, and those that move values.
#include "trainyard/nn/graph/quantized_nodes.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::nn::quantized_nodes_test {
namespace {

// 0 input, 1 conv, 2 relu, 3 pool, 4 flatten, 5 fc
Graph network() {
  GraphBuilder b({.image = {3, 4, 2}, .name = "net"});
  auto x = b.activation("relu", b.convolution("conv", b.input(), {.out_channels = 4}));
  x = b.flatten("flatten", b.max_pool("pool", x, {.kernel = 2, .stride = 2}));
  return b.build(b.linear("fc", x, {.out_features = 2}));
}

std::string refusal(const Graph& graph, const Quantization& quantization,
                    core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
  return core::message_of([&] { static_cast<void>(quantized_nodes(graph, quantization)); }, code);
}

TEST(QuantizedNodes, AreFoundByName) {
  const Graph graph = network();
  const Quantization quantization{.activations = {{"input", {0.5F, 3}}, {"relu", {0.25F, 0}}, {"pool", {0.25F, 0}}},
                                  .weights = {{"conv", {1, 2, 3, 4}}}};
  const QuantizedNodes nodes = quantized_nodes(graph, quantization);
  ASSERT_EQ(nodes.activations.size(), 6U);
  ASSERT_EQ(nodes.weights.size(), 6U);
  EXPECT_EQ(nodes.activations[0], &quantization.activations.at("input"));
  EXPECT_EQ(nodes.activations[2], &quantization.activations.at("relu"));
  EXPECT_EQ(nodes.activations[3], &quantization.activations.at("pool"));
  EXPECT_EQ(nodes.weights[1], &quantization.weights.at("conv"));
  for (const size_t none : {size_t{1}, size_t{4}, size_t{5}}) EXPECT_EQ(nodes.activations[none], nullptr) << none;
  for (const size_t none : {size_t{0}, size_t{2}, size_t{5}}) EXPECT_EQ(nodes.weights[none], nullptr) << none;
}

TEST(QuantizedNodes, AScaleThatIsNoScaleIsNamed) {
  const Graph graph = network();
  const float infinity = std::numeric_limits<float>::infinity();
  // The inverse of the last one is not finite.
  for (const float scale : {0.0F, -1.0F, infinity, 1e-39F}) {
    const Quantization bad{.activations = {{"conv", {scale, 0}}}};
    EXPECT_EQ(refusal(graph, bad).substr(0, 88),
              "the scale of an activation is not usable: conv: expected a positive, finite number, got ")
        << scale;
  }
  const Quantization weights{.activations = {{"input", {1, 0}}}, .weights = {{"conv", {1, 2, -3, 4}}}};
  EXPECT_EQ(refusal(graph, weights),
            "the scale of a layer's weights is not usable: conv, output channel 2: expected a positive, finite number, "
            "got -3; quantize the model again");
}

TEST(QuantizedNodes, WeightsThatDoNotFitTheirLayerAreNamed) {
  const Graph graph = network();
  const auto with_weights = [&](const std::string& node, size_t count) {
    return refusal(graph, {.activations = {{"input", {1, 0}}}, .weights = {{node, std::vector<float>(count, 1)}}});
  };
  EXPECT_EQ(with_weights("conv", 4), "no error");
  EXPECT_EQ(with_weights("conv", 3),
            "the weight scales do not fit the layer: conv: expected 4, one an output channel, got 3; quantize the "
            "model again");
  for (const char* node : {"relu", "input"}) {
    EXPECT_EQ(with_weights(node, 4), "weight scales are given for a layer without such weights: " + std::string(node) +
                                         ": expected a convolution or a linear layer, got " +
                                         (node == std::string("relu") ? "activation" : "input") +
                                         "; quantize the model again");
  }
  EXPECT_EQ(with_weights("fc", 2),
            "a layer with weights in 8 bits reads values that have no scale: fc: expected a scale of 'flatten', got "
            "none; quantize the model again");
}

TEST(QuantizedNodes, WhatMovesValuesKeepsTheirScale) {
  const Graph graph = network();
  EXPECT_EQ(refusal(graph, {.activations = {{"relu", {0.5F, 3}}, {"pool", {0.25F, 3}}}}),
            "a layer of kind max_pool keeps the scale of its input: pool: expected that of 'relu', 0.5 with zero point "
            "3, got 0.25 with zero point 3; quantize the model again");
  EXPECT_EQ(refusal(graph, {.activations = {{"relu", {0.5F, 3}}, {"pool", {0.5F, 4}}}}),
            "a layer of kind max_pool keeps the scale of its input: pool: expected that of 'relu', 0.5 with zero point "
            "3, got 0.5 with zero point 4; quantize the model again");
  EXPECT_EQ(refusal(graph, {.activations = {{"flatten", {0.25F, 9}}, {"fc", {1, 0}}}}),
            "a layer of kind flatten keeps the scale of its input: flatten: expected none, as 'pool' has none, got "
            "0.25 with zero point 9; quantize the model again");
  const std::vector<Op> moving = {Pool{.kind = Pool::Kind::kMax},
                                  Flatten{},
                                  Dropout{},
                                  StochasticDepth{},
                                  ChannelPad{},
                                  ChannelSlice{},
                                  ChannelShuffle{},
                                  SpatialPad{},
                                  PatchMerge{}};
  for (const Op& op : moving) EXPECT_TRUE(keeps_scale(op)) << op.index();
  const std::vector<Op> others = {Pool{.kind = Pool::Kind::kAverage}, Activation{}, Add{}, Concat{}, Upsample{}};
  for (const Op& op : others) EXPECT_FALSE(keeps_scale(op)) << op.index();
}

TEST(QuantizedNodes, SumsThatMayNotFit32BitsAreRefused) {
  const auto of_linear = [](int64_t inputs) {
    GraphBuilder b({.image = {inputs}, .name = "wide"});
    const Graph graph = b.build(b.linear("fc", b.input(), {.out_features = 1}));
    return refusal(graph, {.activations = {{"input", {1, 0}}}, .weights = {{"fc", std::vector<float>(1, 1)}}},
                   core::ErrorCode::kUnsupported);
  };
  EXPECT_EQ(of_linear(66000), "no error");
  EXPECT_EQ(of_linear(66001),
            "the sums of a layer may not fit 32 bits: fc: expected at most 66000 products, got 66001; leave this layer "
            "in float");
  const auto of_convolution = [](int64_t groups) {
    GraphBuilder b({.image = {17600, 3, 5}, .name = "grouped"});
    const auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = {3, 5}, .groups = groups});
    return refusal(b.build(x), {.activations = {{"input", {1, 0}}}, .weights = {{"conv", std::vector<float>(4, 1)}}},
                   core::ErrorCode::kUnsupported);
  };
  EXPECT_EQ(of_convolution(4), "no error");
  EXPECT_EQ(of_convolution(2),
            "the sums of a layer may not fit 32 bits: conv: expected at most 66000 products, got 132000; leave this "
            "layer in float");
}

}  // namespace
}  // namespace trainyard::nn::quantized_nodes_test
