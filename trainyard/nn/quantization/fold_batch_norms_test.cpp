#include "trainyard/nn/quantization/fold_batch_norms.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/graph/custom_layer.h"
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

TEST(FoldBatchNorms, ABiasIsScaledWithTheWeights) {
  for (const bool scale : {false, true}) {
    GraphBuilder b({.image = {1, 1, 1}, .name = "net"});
    const auto x = b.convolution("conv", b.input(), {.out_channels = 1, .bias = true});
    const Graph graph = b.build(b.flatten("flatten", b.batch_norm("bn", x, {.epsilon = 0.25, .scale = scale})));
    ParameterSet set = declared_set(graph);
    set.value(*set.find("conv.weight")).fill_(3);
    set.value(*set.find("conv.bias")).fill_(4);
    if (scale) set.value(*set.find("bn.weight")).fill_(2);
    set.value(*set.find("bn.bias")).fill_(5);
    set.buffer(*set.find_buffer("bn.running_mean")).fill_(7);
    set.buffer(*set.find_buffer("bn.running_var")).fill_(3.75);
    const FoldedNetwork folded = fold_batch_norms(graph, set);
    const auto value = [&](const char* name) {
      return folded.parameters->value(*folded.parameters->find(name)).item<float>();
    };
    // The deviation is 2: the factor is 1/2, or 1 with the scale.
    EXPECT_EQ(value("conv.weight"), scale ? 3 : 1.5);
    EXPECT_EQ(value("conv.bias"), scale ? 2 : 3.5);
    EXPECT_EQ(folded.parameters->size(), 2U);
    EXPECT_EQ(folded.parameters->buffer_count(), 0U);
  }
}

// y = (x + weight) * sum of counts; the counts are integers.
class Shift : public CustomLayer {
 public:
  Shift() : weight_(parameter({"weight", {4}, Initializer::normal(1)})), counts_(buffer("counts", start())) {}
  Shape output_shape(const std::vector<Shape>& inputs) const override { return inputs[0]; }
  at::Tensor forward(std::span<const at::Tensor> inputs) override { return (inputs[0] + weight_) * counts_.sum(); }

 private:
  static at::Tensor start() { return at::full({2}, 5, at::kLong); }
  at::Tensor weight_, counts_;
};

TEST(FoldBatchNorms, KeepsWhatCustomLayersOfTheNetworkHave) {
  GraphBuilder b({.image = {4}, .name = "own"});
  const auto x = b.foreign("own", b.input(), custom_layer<Shift>("Shift"));
  const auto head = b.foreign("head", b.input(), custom_layer<Shift>("Shift"));
  const Graph graph = b.build(b.linear("fc", x, {.out_features = 3}), {{"auxiliary", head.id, 0.4}});
  ParameterSet set;
  const auto executor = make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(5);
  const FoldedNetwork folded = fold_batch_norms(graph, set);
  EXPECT_TRUE(
      at::equal(folded.parameters->value(*folded.parameters->find("own.weight")), set.value(*set.find("own.weight"))));
  const at::Tensor counts = folded.parameters->buffer(*folded.parameters->find_buffer("own.counts"));
  EXPECT_TRUE(at::equal(counts, at::full({2}, 5, at::kLong)));
  EXPECT_FALSE(folded.parameters->find("head.weight").has_value()) << "only training needs it";
  EXPECT_FALSE(folded.parameters->find_buffer("head.counts").has_value());
  const at::Tensor images = normal({3, 4}, "images");
  EXPECT_LT(
      largest_difference(reference_logits(folded.graph, *folded.parameters, images), executor->forward(images, {})),
      1e-6);
}

}  // namespace
}  // namespace trainyard::nn::fold_batch_norms_test
