#include "trainyard/nn/quantization/fold_batch_norms.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::nn::fold_batch_norms_test {
namespace {

using namespace quantization_testing;

int64_t norms_of(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& node) { return std::holds_alternative<BatchNorm>(node.op); });
}

TEST(FoldBatchNorms, LeavesTheLogitsAsTheyAre) {
  for (const Graph& graph : {residual_network(), depthwise_network(), transformer()}) {
    ParameterSet set = values_for(graph);
    const FoldedNetwork folded = fold_batch_norms(graph, set);
    EXPECT_EQ(norms_of(folded.graph), 0) << graph.name;
    Shape shape = graph.input_shape();
    shape.insert(shape.begin(), 5);
    const at::Tensor images = normal(shape, "images");
    EXPECT_LT(largest_difference(reference_logits(folded.graph, *folded.parameters, images),
                                 reference_logits(graph, set, images)),
              1e-5)
        << graph.name;
  }
}

TEST(FoldBatchNorms, KeepsNamesAndGivesBiases) {
  const Graph graph = residual_network();
  const ParameterSet set = values_for(graph);
  const FoldedNetwork folded = fold_batch_norms(graph, set);
  EXPECT_TRUE(std::get<Convolution>(folded.graph.node("conv3").op).bias);
  EXPECT_TRUE(folded.parameters->find("conv3.bias").has_value());
  EXPECT_FALSE(folded.parameters->find("conv3_bn.weight").has_value());
  EXPECT_EQ(folded.graph.outputs.front().name, graph.outputs.front().name);
  // What is given is not changed.
  EXPECT_EQ(norms_of(graph), 6);
}

TEST(FoldBatchNorms, IsTheFormula) {
  GraphBuilder b({.image = {1, 1, 1}, .name = "net"});
  const Graph graph = b.build(b.flatten(
      "flatten", b.batch_norm("bn", b.convolution("conv", b.input(), {.out_channels = 1}), {.epsilon = 0.25})));
  ParameterSet set = declared_set(graph);
  set.value(*set.find("conv.weight")).fill_(3);
  set.value(*set.find("bn.weight")).fill_(2);
  set.value(*set.find("bn.bias")).fill_(5);
  set.buffer(*set.find_buffer("bn.running_mean")).fill_(7);
  set.buffer(*set.find_buffer("bn.running_var")).fill_(0.75);
  const FoldedNetwork folded = fold_batch_norms(graph, set);
  EXPECT_EQ(folded.parameters->value(*folded.parameters->find("conv.weight")).item<float>(), 6);
  EXPECT_EQ(folded.parameters->value(*folded.parameters->find("conv.bias")).item<float>(), -9);
}

TEST(FoldBatchNorms, ANormThatFollowsNoConvolutionStays) {
  GraphBuilder b({.image = {2, 4, 4}, .name = "net"});
  auto x = b.activation("relu", b.batch_norm("first", b.input()));
  auto y = b.convolution("conv", x, {.out_channels = 2, .kernel = 1});
  // Two readers: the convolution's own output is needed, too.
  x = b.add("sum", {b.batch_norm("second", y), y});
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 3, .bias = false}));
  ParameterSet set = values_for(graph);
  const FoldedNetwork folded = fold_batch_norms(graph, set, /*all_biases=*/true);
  EXPECT_EQ(norms_of(folded.graph), 2);
  EXPECT_TRUE(folded.parameters->find("conv.bias").has_value());
  EXPECT_EQ(folded.parameters->value(*folded.parameters->find("fc.bias")).abs().max().item<float>(), 0);
  const at::Tensor images = normal({3, 2, 4, 4}, "images");
  EXPECT_LT(largest_difference(reference_logits(folded.graph, *folded.parameters, images),
                               reference_logits(graph, set, images)),
            1e-6);
}

TEST(FoldBatchNorms, DropsWhatOnlyTrainingNeeds) {
  GraphBuilder b({.image = {2, 4, 4}, .name = "net"});
  auto x = b.global_average_pool("pool", b.batch_norm("bn", b.convolution("conv", b.input(), {.out_channels = 2})));
  auto other = b.linear("auxiliary_fc", x, {.out_features = 3});
  const Graph graph = b.build(b.linear("fc", x, {.out_features = 3}), {{"auxiliary", other.id, 0.4}});
  const ParameterSet set = values_for(graph);
  const FoldedNetwork folded = fold_batch_norms(graph, set);
  EXPECT_EQ(folded.graph.outputs.size(), 1);
  EXPECT_FALSE(folded.parameters->find("auxiliary_fc.weight").has_value());
}

TEST(FoldBatchNorms, RefusesWhatIsNotFinite) {
  const Graph graph = residual_network();
  ParameterSet set = values_for(graph);
  at::Tensor weight = set.value(*set.find("conv2.weight"));
  weight.view(-1)[3] = std::numeric_limits<float>::quiet_NaN();
  const core::Error error = core::thrown_by([&] { (void)fold_batch_norms(graph, set); });
  EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
  EXPECT_TRUE(core::says(error, "conv2.weight")) << error.what();

  ParameterSet others = values_for(transformer());
  EXPECT_TRUE(core::says(core::thrown_by([&] { (void)fold_batch_norms(graph, others); }), "not those of the graph"));
}

}  // namespace
}  // namespace trainyard::nn::fold_batch_norms_test
