#include <string>

#include <gtest/gtest.h>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

namespace trainyard::optim::layer_regularization_test {
namespace {

nn::Graph small_graph(bool convolution_bias) {
  nn::GraphBuilder b({.image = {3, 8, 8}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .bias = convolution_bias});
  x = b.batch_norm("norm", x);
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
}

std::string names_of(const std::vector<RegularizationTerm>& terms) {
  std::string names;
  for (const RegularizationTerm& term : terms) names += term.pattern + " ";
  return names;
}

TEST(LayerRegularization, IsOfKernelsAndOfBiasesOfLinearLayers) {
  EXPECT_EQ(names_of(keras_l2(small_graph(true), 1e-4)), "conv.weight fc.weight fc.bias ");
  for (const RegularizationTerm& term : keras_l2(small_graph(true), 1e-4)) {
    EXPECT_EQ(term.kind, RegularizationKind::kL2);
    EXPECT_EQ(term.coefficient, 1e-4);
  }
}

TEST(LayerRegularization, IsOneWeightDecayWhereItIsOfTheSameParameters) {
  OptimizerOptions options;
  nn::Graph graph = small_graph(false);
  set_regularization(keras_l2(graph, 1e-4), graph, options);
  EXPECT_EQ(options.weight_decay, 2e-4);
  EXPECT_TRUE(options.regularization.empty());

  // A bias of a convolution decays by weight decay, but has no term.
  graph = small_graph(true);
  set_regularization(keras_l2(graph, 1e-4), graph, options);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_EQ(options.regularization.size(), 3u);

  graph = small_graph(false);
  std::vector<RegularizationTerm> terms = keras_l2(graph, 1e-4);
  terms[1].coefficient = 1e-3;
  set_regularization(terms, graph, options);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_EQ(options.regularization.size(), 3u);
  set_regularization({}, graph, options);
  EXPECT_EQ(options.weight_decay, 0);
  EXPECT_TRUE(options.regularization.empty());
}

}  // namespace
}  // namespace trainyard::optim::layer_regularization_test
