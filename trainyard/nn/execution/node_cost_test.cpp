// Against sums by hand.

#include "trainyard/nn/execution/node_cost.h"

#include <vector>

#include <gtest/gtest.h>

namespace trainyard::nn::node_cost_test {
namespace {

constexpr auto kForward = NodeRun::Phase::kForward;
constexpr auto kBackward = NodeRun::Phase::kBackward;

// 0 input 3x4x4, 1 conv1 2x4x4, 2 bn, 3 relu, 4 conv2 2x4x4, 5 add (of 3 and 4), 6 pool 2, 7 fc 5
Graph graph() {
  GraphBuilder b({.image = {3, 4, 4}, .name = "small"});
  const Convolution op{.out_channels = 2, .kernel = 3, .padding = Padding::all(1)};
  const auto x = b.activation("relu", b.batch_norm("bn", b.convolution("conv1", b.input(), op)));
  const auto y = b.add("add", {x, b.convolution("conv2", x, op)});
  return b.build(b.linear("fc", b.global_average_pool("pool", y), {.out_features = 5}));
}

TEST(NodeCosts, CountsFlops) {
  const Graph small = graph();
  const NodeCosts costs(small, {.batch = 10});
  const auto flops = [&](std::vector<int> nodes, NodeRun::Phase phase) { return costs.flops(nodes, phase); };
  constexpr int64_t kConv1 = 10LL * 2 * (2 * 16) * 3 * 9, kConv2 = 10LL * 2 * (2 * 16) * 2 * 9, kFc = 10LL * 2 * 5 * 2;
  EXPECT_EQ(flops({1}, kForward), kConv1);
  EXPECT_EQ(flops({1, 2, 3}, kForward), kConv1);
  EXPECT_EQ(flops({1}, kBackward), kConv1) << "images want no gradient";
  EXPECT_EQ(flops({4, 5}, kBackward), 2 * kConv2);
  EXPECT_EQ(flops({4, 7}, kForward), kConv2 + kFc);
  EXPECT_EQ(flops({0}, kBackward) + flops({6}, kForward), 0);
}

TEST(NodeCosts, CountsTheLeastTraffic) {
  const Graph small = graph();
  const NodeCosts costs(small, {.batch = 10, .activation_bytes = 2, .parameter_bytes = 4});
  const auto bytes = [&](std::vector<int> nodes, NodeRun::Phase phase) { return costs.bytes(nodes, phase); };
  constexpr int64_t kImage = 10LL * 48 * 2, kMap = 10LL * 32 * 2, kPooled = 10LL * 2 * 2, kLogits = 10LL * 5 * 2;
  constexpr int64_t kConv1 = 2LL * 3 * 9 * 4, kConv2 = 2LL * 2 * 9 * 4, kNorm = 4LL * 4, kFc = (10LL + 5) * 4;
  EXPECT_EQ(bytes({1}, kForward), kImage + kConv1 + kMap);
  EXPECT_EQ(bytes({2}, kForward), kMap + kNorm + kMap);
  EXPECT_EQ(bytes({1, 2, 3}, kForward), kImage + kConv1 + kNorm + kMap) << "what stays among them moves nothing";
  EXPECT_EQ(bytes({4, 5}, kForward), kMap + kConv2 + kMap) << "a value that both use is read once";
  EXPECT_EQ(bytes({7}, kForward), kPooled + kFc + kLogits) << "the caller takes the logits";

  EXPECT_EQ(bytes({1}, kBackward), kMap + 2 * kConv1 + kImage) << "gradient in, weights, saved images, none out";
  EXPECT_EQ(bytes({2}, kBackward), kMap + 2 * kNorm + kMap + kMap);
  EXPECT_EQ(bytes({3}, kBackward), kMap + kMap) << "a mask is not counted";
  EXPECT_EQ(bytes({1, 2, 3}, kBackward), kMap + 2 * kConv1 + 2 * kNorm + kImage + kMap) << "saved: images, conv1's map";
  EXPECT_EQ(bytes({6}, kBackward), kPooled + kMap);
}

// 0 input 4x3x2, 1 first, 2 tanh, 3 gate, 4 product, 5 norm, 6 scale, 7 response
TEST(NodeCosts, CountWhatALayersGradientReadsAgain) {
  GraphBuilder b({.image = {4, 3, 2}, .name = "saved"});
  const auto x = b.convolution("first", b.input(), {.out_channels = 4, .kernel = 1});
  const auto gate = b.activation("gate", b.activation("tanh", x, Activation::Function::kTanh));
  const auto norm = b.layer_norm("norm", b.multiply("product", gate, x), {});
  const Graph saved = b.build(b.local_response_norm("response", b.layer_scale("scale", norm, {}), {}));
  const NodeCosts costs(saved, {.batch = 1, .activation_bytes = 2, .parameter_bytes = 4});
  constexpr int64_t kMap = 24LL * 2, kFour = 4LL * 4;
  const auto backward = [&](int node) { return costs.bytes(std::vector<int>{node}, kBackward); };
  // A gradient in, one out to each input, and the inputs that are read again.
  EXPECT_EQ(backward(2), 3 * kMap) << "tanh";
  EXPECT_EQ(backward(3), 2 * kMap) << "a ReLU, whose mask is not counted";
  EXPECT_EQ(backward(4), 5 * kMap) << "a product";
  EXPECT_EQ(backward(5), 3 * kMap + 2 * 2 * kFour) << "layer norm with weight and bias";
  EXPECT_EQ(backward(6), 3 * kMap + 2 * kFour) << "layer scale";
  EXPECT_EQ(backward(7), 3 * kMap) << "local response norm";
}

// 0 input 6x2x2, 1 first, 2 up, 3 length, 4 attention 2x2x2, 5 flat, 6 fc 3
TEST(NodeCosts, CountWhatTheGradientsOfOtherLayersReadAgain) {
  GraphBuilder b({.image = {6, 2, 2}, .name = "others"});
  auto x = b.convolution("first", b.input(), {.out_channels = 6, .kernel = 1});
  x = b.l2_norm("length", b.transposed_convolution("up", x, {.out_channels = 6}), {});
  x = b.flatten("flat", b.attention("attention", x, {.heads = 2}));
  const Graph others = b.build(b.linear("fc", x, {.out_features = 3}));
  const NodeCosts costs(others, {.batch = 1, .activation_bytes = 2, .parameter_bytes = 4});
  constexpr int64_t kMap = 24LL * 2, kHeads = 8LL * 2, kLogits = 3LL * 2;
  const auto backward = [&](int node) { return costs.bytes(std::vector<int>{node}, kBackward); };
  EXPECT_EQ(backward(2), 3 * kMap + 2 * 36 * 4) << "transposed convolution";
  EXPECT_EQ(backward(3), 3 * kMap + 2 * 6 * 4) << "length";
  EXPECT_EQ(backward(4), kHeads + 2 * kMap) << "attention";
  EXPECT_EQ(backward(5), 2 * kHeads) << "another view";
  EXPECT_EQ(backward(6), kLogits + 2 * kHeads + 2 * (8 + 1) * 3 * 4) << "linear layer";
}

}  // namespace
}  // namespace trainyard::nn::node_cost_test
