// airbench's numbers for airbench's networks, by tools/golden/airbench_models.py, and how they begin.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/testing/golden_network.h"

namespace trainyard::models::airbench_test {
namespace {

class Airbench : public GoldenNetworkTest {
 protected:
  const Golden golden_ = read_golden("trainyard/models/airbench/testdata/" + GetParam() + ".txt");
  const nn::Graph graph_ = build_model(GetParam(), "cifar10", {.num_classes = kClasses});
};

TEST_P(Airbench, ParametersAreTheOriginals) {
  EXPECT_EQ(graph_.parameter_count(), golden_.parameters);
  std::map<std::string, std::string> expected, actual;
  for (const auto& [name, gradient] : golden_.gradients) expected[name] = gradient.shape;
  for (const nn::Node& node : graph_.nodes) {
    for (const nn::ParameterSpec& spec : node.parameters) actual[spec.name] = nn::to_string(spec.shape);
  }
  EXPECT_EQ(actual, expected);
}

TEST_P(Airbench, LogitsAndGradientsAreTheOriginals) {
  expect_golden(graph_, golden_);
}

// PyTorch's dirac_ in the first filters, torch.nn.Conv2d's uniform numbers in the others.
TEST_P(Airbench, ConvolutionsBeginAsTheIdentity) {
  nn::ParameterSet set;
  const auto executor = nn::make_executor("cpu", graph_, {.mode = nn::Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(3);
  int convolutions = 0;
  for (const nn::Segment& segment : set.segments()) {
    if (segment.spec.shape.size() != 4 || segment.spec.shape[3] != 3) continue;
    ++convolutions;
    const at::Tensor weight = set.value(segment.id);
    const int64_t out = weight.size(0), in = weight.size(1), filters = std::min(out, in);
    at::Tensor identity = at::zeros({filters, in, 3, 3});
    for (int64_t i = 0; i < filters; ++i) identity[i][i][1][1] = 1;
    EXPECT_TRUE(at::equal(weight.narrow(0, 0, filters), identity)) << segment.spec.name;
    if (out == filters) continue;
    const double bound = 1 / std::sqrt(9.0 * static_cast<double>(in));  // torch.nn.Conv2d's
    const at::Tensor rest = weight.narrow(0, filters, out - filters);
    EXPECT_LE(rest.abs().max().item<double>(), bound * (1 + 1e-6)) << segment.spec.name;
    EXPECT_NEAR(rest.std().item<double>(), bound / std::sqrt(3.0), 0.03 * bound) << segment.spec.name;
  }
  EXPECT_EQ(convolutions, GetParam() == "airbench94" ? 6 : 9);
}

INSTANTIATE_TEST_SUITE_P(Models, Airbench, ::testing::Values("airbench94", "airbench96"),
                         [](const auto& model) { return std::string(model.param); });

// airbench94_muon divides the head's weight by its deviation.
TEST(Airbench94, HeadBeginsWithDeviationOne) {
  nn::ParameterSet set;
  const auto executor = nn::make_executor("reference", build_model("airbench94", "cifar10", {.num_classes = kClasses}),
                                          {.parameters = &set});
  set.allocate();
  set.initialize(3);
  EXPECT_NEAR(set.value(*set.find("head.weight")).std().item<double>(), 1, 0.03);
}

// What the networks on drawn weights do not show: how the other layers begin, and the norms' options.
TEST(AirbenchStart, LayersBeginAsTheOriginals) {
  const nn::Graph small = build_model("airbench94", "cifar10", {.num_classes = kClasses});
  const nn::Graph large = build_model("airbench96", "cifar10", {.num_classes = kClasses});
  const auto init = [](const nn::Graph& graph, const char* node, size_t parameter) {
    return graph.node(node).parameters.at(parameter).init;
  };
  EXPECT_TRUE(init(small, "whiten", 0) == nn::Initializer::he_uniform());
  EXPECT_TRUE(init(large, "0", 0) == nn::Initializer::he_uniform());
  EXPECT_EQ(init(small, "whiten", 1).kind, nn::Initializer::Kind::kUniform);
  EXPECT_NEAR(init(small, "whiten", 1).value, 1 / std::sqrt(12.0), 1e-12) << "of 3 x 2 x 2 inputs";
  EXPECT_TRUE(init(large, "0", 1) == nn::Initializer::zeros());
  EXPECT_EQ(init(small, "head", 0).kind, nn::Initializer::Kind::kUniform);
  EXPECT_NEAR(init(small, "head", 0).value, std::sqrt(3.0), 1e-12);
  EXPECT_TRUE(init(large, "7", 0) == nn::Initializer::he_uniform());
  EXPECT_EQ(small.node("head").parameters.size(), 1U) << "no bias";
  EXPECT_EQ(large.node("7").parameters.size(), 1U);
  EXPECT_EQ(small.node("layers.3.norm2").description(), "epsilon 1e-12, decay 0.6, no scale");
  EXPECT_EQ(large.node("4.norm3").description(), "epsilon 1e-12, decay 0.9, no scale");
  EXPECT_EQ(std::get<nn::LocalResponseNorm>(small.node("scale").op).bias, 256);
  EXPECT_EQ(std::get<nn::LocalResponseNorm>(large.node("scale").op).bias, 9);
}

// The logits are divided by the number of features, which other images have more of.
TEST(Airbench94, LargerImagesHaveTheirFeaturesDivided) {
  const nn::Graph graph = build_model("airbench94", "cifar10", {.num_classes = kClasses, .image_size = {64, 32}});
  EXPECT_EQ(std::get<nn::LocalResponseNorm>(graph.node("scale").op).bias, 512);
  EXPECT_EQ(graph.node("head").parameters.at(0).shape, (nn::Shape{kClasses, 512}));
}

}  // namespace
}  // namespace trainyard::models::airbench_test
