#include "trainyard/nn/quantization/equalization.h"

#include <cmath>
#include <map>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/nn/quantization/calibration.h"
#include "trainyard/nn/quantization/weights_of.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::nn::equalization_test {
namespace {

using namespace quantization_testing;

FoldedNetwork folded(const Graph& graph) {
  return fold_batch_norms(graph, values_for(graph));
}

// Returns a copy whose logits can be compared with the first ones.
FoldedNetwork copy_of(const FoldedNetwork& network) {
  return {.graph = network.graph, .parameters = std::make_shared<ParameterSet>(network.parameters->clone())};
}

double change_of_logits(const FoldedNetwork& before, const FoldedNetwork& after, const at::Tensor& images) {
  return largest_difference(reference_logits(after.graph, *after.parameters, images),
                            reference_logits(before.graph, *before.parameters, images));
}

TEST(Equalization, LeavesTheLogitsAndChangesWeights) {
  const at::Tensor images = normal({16, 3, 8, 8}, "images");
  const std::vector<at::Tensor> batches = {images.narrow(0, 0, 10), images.narrow(0, 10, 6)};
  for (const auto function : {Activation::Function::kRelu, Activation::Function::kRelu6}) {
    const FoldedNetwork before = folded(depthwise_network(function));
    const FoldedNetwork network = copy_of(before);
    FoldedNetwork changed = network;
    EXPECT_GT(equalize_layers(changed, batches), 50);
    EXPECT_FALSE(at::equal(changed.parameters->values(), before.parameters->values()));
    EXPECT_LT(change_of_logits(before, changed, images), 1e-5);
  }
}

TEST(Equalization, RangesOfAPairAreEqualAfterwards) {
  FoldedNetwork network = folded(depthwise_network(Activation::Function::kRelu));
  equalize_layers(network, std::vector<at::Tensor>{normal({4, 3, 8, 8}, "images")});
  const Node &first = network.graph.node("block0_expand"), &second = network.graph.node("block0_depthwise");
  const at::Tensor written = weight_of(first, *network.parameters).abs().flatten(1).amax(1);
  const at::Tensor read = weight_of(second, *network.parameters).abs().flatten(1).amax(1);  // depthwise: in is out
  EXPECT_LT(written.div(read).sub(1).abs().max().item<double>(), 0.01);
}

TEST(Equalization, OfTwoLayersIsTheClosedForm) {
  GraphBuilder b({.image = {1, 1, 1}, .name = "net"});
  auto x = b.activation("relu", b.linear("first", b.flatten("flatten", b.input()), {.out_features = 2}));
  FoldedNetwork network = folded(b.build(b.linear("second", x, {.out_features = 1})));
  ParameterSet& set = *network.parameters;
  set.value(*set.find("first.weight")).copy_(at::tensor({8.0F, 1.0F}).view({2, 1}));
  set.value(*set.find("first.bias")).copy_(at::tensor({4.0F, 3.0F}));
  set.value(*set.find("second.weight")).copy_(at::tensor({2.0F, 9.0F}).view({1, 2}));
  EXPECT_EQ(equalize_layers(network, std::vector<at::Tensor>{normal({4, 1, 1, 1}, "images")}), 2);
  // s = sqrt(8 / 2) = 2 and sqrt(1 / 9) = 1 / 3.
  const auto value = [&](const char* name, int64_t i) { return set.value(*set.find(name)).view(-1)[i].item<float>(); };
  EXPECT_FLOAT_EQ(value("first.weight", 0), 4);
  EXPECT_FLOAT_EQ(value("first.weight", 1), 3);
  EXPECT_FLOAT_EQ(value("first.bias", 0), 2);
  EXPECT_FLOAT_EQ(value("first.bias", 1), 9);
  EXPECT_FLOAT_EQ(value("second.weight", 0), 4);
  EXPECT_FLOAT_EQ(value("second.weight", 1), 3);
}

TEST(Equalization, AChannelThatReachesSixIsLeftBehindARelu6) {
  GraphBuilder b({.image = {1, 1, 1}, .name = "net"});
  auto x = b.activation("relu6", b.linear("first", b.flatten("flatten", b.input()), {.out_features = 2}),
                        Activation::Function::kRelu6);
  const FoldedNetwork before = folded(b.build(b.linear("second", x, {.out_features = 1})));
  ParameterSet& set = *before.parameters;
  set.value(*set.find("first.weight")).copy_(at::tensor({8.0F, 1.0F}).view({2, 1}));
  set.value(*set.find("first.bias")).fill_(0);
  set.value(*set.find("second.weight")).copy_(at::tensor({2.0F, 900.0F}).view({1, 2}));
  FoldedNetwork network = copy_of(before);
  const at::Tensor images = at::tensor({1.0F, -1.0F, 0.5F}).view({3, 1, 1, 1});
  // The first channel has 8 for an image of 1. The second one, 1, may become 4.8: s is 1 / 4.8, not 1 / 30.
  EXPECT_EQ(equalize_layers(network, std::vector<at::Tensor>{images}), 1);
  const at::Tensor weight = network.parameters->value(*network.parameters->find("first.weight"));
  EXPECT_EQ(weight.view(-1)[0].item<float>(), 8);
  EXPECT_FLOAT_EQ(weight.view(-1)[1].item<float>(), 4.8F);
  EXPECT_LT(change_of_logits(before, network, images), 1e-6);
}

TEST(Equalization, FindsNoPairWhereAnotherNodeReads) {
  EXPECT_TRUE(find_pairs(folded(residual_network()).graph).size() == 2);  // conv2 to conv3, conv4 to conv5
  EXPECT_TRUE(find_pairs(folded(transformer()).graph).empty());           // a GELU lets no scale through
  EXPECT_FALSE(is_depthwise_network(residual_network()));
  EXPECT_TRUE(is_depthwise_network(depthwise_network()));
}

TEST(SmoothQuant, LeavesTheLogits) {
  const at::Tensor images = normal({12, 3, 8, 8}, "images");
  const FoldedNetwork before = folded(transformer());
  for (const double alpha : {0.0, 0.5, 1.0}) {
    FoldedNetwork network = copy_of(before);
    // Two norms and an attention a block; the last norm is read by a pool.
    EXPECT_EQ(smooth_activations(network, std::vector<at::Tensor>{images}, alpha), 6);
    EXPECT_FALSE(at::equal(network.parameters->values(), before.parameters->values()));
    EXPECT_LT(change_of_logits(before, network, images), 2e-5) << alpha;
  }
  EXPECT_EQ(smoothable_activations(before.graph), 6);
  EXPECT_EQ(smoothable_activations(residual_network()), 0);
}

TEST(SmoothQuant, BalancesActivationsAndWeights) {
  FoldedNetwork network = folded(transformer());
  const std::vector<at::Tensor> batches = {normal({12, 3, 8, 8}, "images")};
  ParameterSet& set = *network.parameters;
  set.value(*set.find("block0_norm1.weight"))[5].fill_(40);  // an outlier channel
  smooth_activations(network, batches, 0.5);
  // With alpha 0.5 both have sqrt(max |x| max |w|) in each channel.
  const auto& graph = network.graph;
  for (const char* const name : {"block0_norm1", "block0_attention"}) {
    const int id = graph.node(name).id;
    const at::Tensor activations = channel_maxima(network, batches, {id}).at(id).absolute;
    const Node& reader = graph.node(std::string(name) == "block0_norm1" ? "block0_qkv" : "block0_out");
    const at::Tensor weights = weight_of(reader, set).abs().amax(0);
    EXPECT_LT(activations.div(weights).sub(1).abs().max().item<double>(), 1e-3) << name;
  }
}

TEST(SmoothQuant, AChannelWithoutWeightsIsLeft) {
  FoldedNetwork network = folded(transformer());
  ParameterSet& set = *network.parameters;
  set.value(*set.find("block0_qkv.weight")).select(1, 3).fill_(0);
  const float before = set.value(*set.find("block0_norm1.weight"))[3].item<float>();
  smooth_activations(network, std::vector<at::Tensor>{normal({4, 3, 8, 8}, "images")}, 0.5);
  EXPECT_EQ(set.value(*set.find("block0_norm1.weight"))[3].item<float>(), before);
  EXPECT_TRUE(set.values().isfinite().all().item<bool>());
}

TEST(Equalization, ADepthwiseConvolutionHasAGroupForEachOutputChannel) {
  const auto is_depthwise = [](int64_t in, int64_t out, int64_t groups) {
    GraphBuilder b({.image = {in, 2, 2}, .name = "net"});
    const auto x = b.convolution("conv", b.input(), {.out_channels = out, .groups = groups});
    return is_depthwise_network(b.build(b.global_average_pool("pool", x)));
  };
  EXPECT_TRUE(is_depthwise(2, 2, 2));
  EXPECT_FALSE(is_depthwise(1, 1, 1));
  EXPECT_FALSE(is_depthwise(4, 4, 2));
  EXPECT_FALSE(is_depthwise(4, 8, 4));
}

TEST(ChannelMaxima, AreThoseOfAllBatches) {
  GraphBuilder b({.image = {2}, .name = "net"});
  const FoldedNetwork network = folded(b.build(b.linear("fc", b.input(), {.out_features = 2})));
  ParameterSet& set = *network.parameters;
  set.value(*set.find("fc.weight")).copy_(at::tensor({1.0F, 0.0F, 0.0F, -2.0F}).view({2, 2}));
  set.value(*set.find("fc.bias")).fill_(0);
  set.values_changed();
  // Of the layer: [1, -4], [-3, -14] and [2, 10].
  const std::vector<at::Tensor> batches = {at::tensor({1.0F, 2.0F, -3.0F, 7.0F}).view({2, 2}),
                                           at::tensor({2.0F, -5.0F}).view({1, 2})};
  const int fc = network.graph.node("fc").id;
  const std::map<int, ChannelMaxima> maxima = channel_maxima(network, batches, {fc});
  ASSERT_EQ(maxima.size(), 1U);
  EXPECT_TRUE(at::equal(maxima.at(fc).largest, at::tensor({2.0F, 10.0F})));
  EXPECT_TRUE(at::equal(maxima.at(fc).absolute, at::tensor({3.0F, 14.0F})));
}

}  // namespace
}  // namespace trainyard::nn::equalization_test
