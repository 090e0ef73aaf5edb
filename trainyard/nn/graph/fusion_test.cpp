#include "trainyard/nn/graph/fusion.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::nn::fusion_test {
namespace {

using ::testing::ElementsAre;
using Value = GraphBuilder::Value;

GraphBuilder builder() {
  return GraphBuilder({.image = {8, 6, 6}, .name = "graph"});
}

Value conv(GraphBuilder& b, const std::string& name, Value x) {
  return b.convolution(name, x, {.out_channels = 8, .kernel = 3, .padding = Padding::all(1)});
}

// The units as "head+next+...", after a look at what must hold of any fusion.
std::vector<std::string> units_of(const Graph& graph, bool frozen = false, const Fusions& allowed = {}) {
  std::vector<std::string> names;
  std::vector<int> seen(graph.nodes.size()), users(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    for (int input : node.inputs) ++users[static_cast<size_t>(input)];
  }
  int last_tail = 0;
  for (const Unit& unit : fuse(graph, frozen, allowed)) {
    EXPECT_GT(unit.tail(), last_tail) << "units run in the order of their tails";
    last_tail = unit.tail();
    std::string name;
    for (int id : unit.nodes) {
      const Node& node = graph.nodes[static_cast<size_t>(id)];
      ++seen[static_cast<size_t>(id)];
      name += (name.empty() ? "" : "+") + node.name;
      if (id == unit.tail()) break;
      EXPECT_FALSE(graph.is_output(id)) << "the output lies inside " << name;
      EXPECT_EQ(users[static_cast<size_t>(id)], 1) << "somebody else needs " << node.name;
    }
    EXPECT_TRUE(unit.activation < 0 || unit.activation == unit.tail());
    names.push_back(name);
  }
  EXPECT_EQ(seen[0], 0) << "the input is in no unit";
  for (size_t id = 1; id < seen.size(); ++id) EXPECT_EQ(seen[id], 1) << graph.nodes[id].name;
  return names;
}

const Unit& unit_with(const std::vector<Unit>& units, int node) {
  return *std::find_if(units.begin(), units.end(), [&](const Unit& unit) {
    return std::find(unit.nodes.begin(), unit.nodes.end(), node) != unit.nodes.end();
  });
}

// Each switch keeps one kind of layer apart, and nothing else.
TEST(Fusion, SwitchesKeepLayersApart) {
  GraphBuilder b = builder();
  const Value start = b.activation("relu0", conv(b, "conv0", b.input()));
  const Value normed = b.activation("relu1", b.batch_norm("bn1", conv(b, "conv1", start)));
  const Value joined = b.activation("relu2", b.add("add2", {b.batch_norm("bn2", conv(b, "conv2", normed)), start}));
  const Value summed = b.activation("relu3", b.add("add3", {joined, normed}));
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", summed), {.out_features = 3}));
  using Names = std::vector<std::string>;
  const auto but = [&](bool Fusions::*off, bool frozen = false) {
    Fusions allowed;
    allowed.*off = false;
    return units_of(graph, frozen, allowed);
  };
  EXPECT_EQ(units_of(graph),
            (Names{"conv0+relu0", "conv1", "bn1+relu1", "conv2", "bn2+add2+relu2", "add3+relu3", "pool", "fc"}));
  EXPECT_EQ(but(&Fusions::norm_addition),
            (Names{"conv0+relu0", "conv1", "bn1+relu1", "conv2", "bn2", "add2+relu2", "add3+relu3", "pool", "fc"}));
  EXPECT_EQ(but(&Fusions::norm_activation),
            (Names{"conv0+relu0", "conv1", "bn1", "relu1", "conv2", "bn2+add2", "relu2", "add3+relu3", "pool", "fc"}));
  EXPECT_EQ(but(&Fusions::convolution_activation),
            (Names{"conv0", "relu0", "conv1", "bn1+relu1", "conv2", "bn2+add2+relu2", "add3+relu3", "pool", "fc"}));
  EXPECT_EQ(but(&Fusions::sum_activation),
            (Names{"conv0+relu0", "conv1", "bn1+relu1", "conv2", "bn2+add2+relu2", "add3", "relu3", "pool", "fc"}));
  EXPECT_EQ(units_of(graph, true),
            (Names{"conv0+relu0", "conv1+bn1+relu1", "conv2+bn2+add2+relu2", "add3+relu3", "pool", "fc"}));
  EXPECT_EQ(but(&Fusions::folded_norm, true), units_of(graph));
  EXPECT_EQ(units_of(graph, true, Fusions::none()).size(), graph.nodes.size() - 1);

  GraphBuilder scaled = builder();
  const Value scale = scaled.layer_scale("scale", conv(scaled, "conv", scaled.input()), {});
  const Value sum = scaled.add("add", {scaled.stochastic_depth("depth", scale, 0.1), scaled.input()});
  const Graph residual =
      scaled.build(scaled.linear("fc", scaled.global_average_pool("pool", sum), {.out_features = 3}));
  EXPECT_EQ(units_of(residual), (Names{"conv", "scale+depth+add", "pool", "fc"}));
  EXPECT_EQ(units_of(residual, false, Fusions::none()), (Names{"conv", "scale", "depth", "add", "pool", "fc"}));
}

TEST(Fusion, ResidualBlock) {
  GraphBuilder b = builder();
  const Value start = b.activation("relu0", b.batch_norm("bn0", conv(b, "conv0", b.input())));
  Value x = b.activation("relu1", b.batch_norm("bn1", conv(b, "conv1", start)));
  x = b.batch_norm("bn2", conv(b, "conv2", x));
  x = b.activation("relu2", b.add("add", {x, start}));
  const Graph graph = b.build(b.global_average_pool("pool", x));
  EXPECT_THAT(units_of(graph),
              ElementsAre("conv0", "bn0+relu0", "conv1", "bn1+relu1", "conv2", "bn2+add+relu2", "pool"));
  const std::vector<Unit> units = fuse(graph);
  const Unit& joined = unit_with(units, graph.node("add").id);
  EXPECT_EQ(joined.add, graph.node("add").id);
  EXPECT_EQ(joined.residual, graph.node("relu0").id);
  EXPECT_EQ(joined.activation, graph.node("relu2").id);

  EXPECT_THAT(units_of(graph, true), ElementsAre("conv0+bn0+relu0", "conv1+bn1+relu1", "conv2+bn2+add+relu2", "pool"));
  const std::vector<Unit> frozen = fuse(graph, true);
  const Unit& folded = unit_with(frozen, graph.node("add").id);
  EXPECT_EQ(folded.norm, graph.node("bn2").id);
  EXPECT_EQ(folded.residual, graph.node("relu0").id);
  EXPECT_EQ(folded.activation, graph.node("relu2").id);
}

// Either batch norm could take the addition: the later one does, so that the other's output is there by then.
TEST(Fusion, ResidualBlockWithDownsampling) {
  for (const bool shortcut_first : {false, true}) {
    GraphBuilder b = builder();
    const Value start = b.max_pool("pool0", b.input(), {.kernel = 2, .stride = 2});
    Value x = start, shortcut = start;
    if (shortcut_first) shortcut = b.batch_norm("bn_down", conv(b, "conv_down", start));
    x = b.batch_norm("bn", conv(b, "conv", start));
    if (!shortcut_first) shortcut = b.batch_norm("bn_down", conv(b, "conv_down", start));
    x = b.activation("relu", b.add("add", {x, shortcut}));
    const Graph graph = b.build(b.global_average_pool("pool", x));
    const std::string last = shortcut_first ? "bn" : "bn_down", first = shortcut_first ? "bn_down" : "bn";
    EXPECT_THAT(units_of(graph), ::testing::Contains(last + "+add+relu"));
    EXPECT_THAT(units_of(graph), ::testing::Contains(first));
    const std::vector<Unit> units = fuse(graph);
    EXPECT_EQ(unit_with(units, graph.node("add").id).residual, graph.node(first).id);
  }
}

TEST(Fusion, PreActivation) {
  GraphBuilder b = builder();
  const Value start = conv(b, "conv0", b.input());
  Value x = conv(b, "conv1", b.activation("relu1", b.batch_norm("bn1", start)));
  x = conv(b, "conv2", b.activation("relu2", b.batch_norm("bn2", x)));
  x = b.add("add", {x, start});
  x = b.activation("relu3", b.batch_norm("bn3", x));
  const Graph graph = b.build(b.global_average_pool("pool", x));
  EXPECT_THAT(units_of(graph),
              ElementsAre("conv0", "bn1+relu1", "conv1", "bn2+relu2", "conv2", "add", "bn3+relu3", "pool"));
}

TEST(Fusion, ConvolutionTakesReluOnly) {
  GraphBuilder b = builder();
  Value x = b.activation("relu", conv(b, "conv1", b.input()));
  x = b.activation("silu", conv(b, "conv2", x), Activation::Function::kSilu);
  x = b.activation("swish", b.batch_norm("bn", x), Activation::Function::kHardSwish);
  const Value y = conv(b, "conv3", x);
  x = b.activation("relu_of_sum", b.add("sum", {y, x}));
  const Graph graph = b.build(b.global_average_pool("pool", x));
  EXPECT_THAT(units_of(graph),
              ElementsAre("conv1+relu", "conv2", "silu", "bn+swish", "conv3", "sum+relu_of_sum", "pool"));
}

// The kernel of batch norm adds before ReLU only.
TEST(Fusion, SumBehindBatchNormTakesReluOnly) {
  GraphBuilder b = builder();
  Value x = b.add("add", {b.batch_norm("bn", b.input()), b.input()});
  x = b.activation("silu", x, Activation::Function::kSilu);
  EXPECT_THAT(units_of(b.build(b.global_average_pool("pool", x))), ElementsAre("bn+add", "silu", "pool"));
}

TEST(Fusion, LeavesWhatOthersNeed) {
  GraphBuilder b = builder();
  const Value c = conv(b, "conv", b.input());
  const Value n = b.batch_norm("bn", b.activation("relu", c));
  const Value twice = b.add("twice", {n, n});
  const Value other = b.activation("relu2", b.batch_norm("bn2", c));
  const Value sum = b.add("sum", {twice, other});
  Value x = b.concat("concat", {sum, b.activation("relu3", sum)});
  x = b.add("three", {b.batch_norm("bn3", x), x, x});
  EXPECT_THAT(
      units_of(b.build(b.global_average_pool("pool", x))),
      ElementsAre("conv", "relu", "bn", "twice", "bn2+relu2", "sum", "relu3", "concat", "bn3", "three", "pool"));
}

// What is read from outside must be there: even in the middle of what would else be a unit.
TEST(Fusion, KeepsTheOutputOutside) {
  GraphBuilder b = builder();
  Value x = b.activation("relu1", conv(b, "conv", b.input()));
  x = b.activation("relu2", b.add("add", {b.batch_norm("bn", x), b.input()}));
  Graph graph = b.build(b.global_average_pool("pool", x));
  EXPECT_THAT(units_of(graph), ElementsAre("conv+relu1", "bn+add+relu2", "pool"));
  graph.outputs[0].node = graph.node("conv").id;
  EXPECT_THAT(units_of(graph), ElementsAre("conv", "relu1", "bn+add+relu2", "pool"));
  graph.outputs[0].node = graph.node("bn").id;
  EXPECT_THAT(units_of(graph), ElementsAre("conv+relu1", "bn", "add+relu2", "pool"));
  graph.outputs[0].node = graph.node("add").id;
  EXPECT_THAT(units_of(graph), ElementsAre("conv+relu1", "bn+add", "relu2", "pool"));
  graph.outputs[0].node = graph.node("relu2").id;
  EXPECT_THAT(units_of(graph), ElementsAre("conv+relu1", "bn+add+relu2", "pool"));
}

// A graph whose norms were folded has none left: with constant variables its convolutions take the same nodes.
TEST(Fusion, ConvolutionsWithoutNormsTakeWhatFollowsThemWhenVariablesAreConstant) {
  GraphBuilder b = builder();
  Value x = b.activation("silu", conv(b, "conv1", b.input()), Activation::Function::kSilu);
  x = b.activation("relu", b.add("add", {conv(b, "conv2", x), b.input()}));
  const Graph graph = b.build(b.global_average_pool("pool", x));
  EXPECT_THAT(units_of(graph), ElementsAre("conv1", "silu", "conv2", "add+relu", "pool"));
  EXPECT_THAT(units_of(graph, true), ElementsAre("conv1+silu", "conv2+add+relu", "pool"));
}

TEST(Fusion, EndsUnitsWhereAValueIsRounded) {
  GraphBuilder b = builder();
  const Value x = b.activation("relu", b.add("add", {conv(b, "conv", b.input()), b.input()}));
  const Graph graph = b.build(b.global_average_pool("pool", x));
  const auto units = [&](const std::string& rounded) {
    const Quantization quantization{.activations = {{rounded, {}}}};
    std::vector<size_t> sizes;
    for (const Unit& unit : fuse(graph, true, {}, &quantization)) sizes.push_back(unit.nodes.size());
    return sizes;
  };
  EXPECT_THAT(units("relu"), ElementsAre(3, 1));
  EXPECT_THAT(units("add"), ElementsAre(2, 1, 1));
  EXPECT_THAT(units("conv"), ElementsAre(1, 2, 1));
}

TEST(Fusion, LayerScaleTakesTheDepthAndTheAdditionBehindIt) {
  GraphBuilder b = builder();
  const Value x = conv(b, "conv", b.input());
  const Value y = b.stochastic_depth("depth", b.layer_scale("scale", x, {}), 0.1);
  const Graph graph = b.build(b.add("add", {y, x}));
  EXPECT_THAT(units_of(graph), ElementsAre("conv", "scale+depth+add"));
  const std::vector<Unit> units = fuse(graph);
  EXPECT_EQ(units[1].depth, 3);
  EXPECT_EQ(units[1].residual, 1);
}

// Whether a node is free says that node alone, not the one in front of it in the graph's order.
TEST(Fusion, NodesOfOthersMayLieBetween) {
  GraphBuilder b = builder();
  const Value c = conv(b, "conv", b.input());
  const Value n = b.batch_norm("bn", b.input());
  const Value r = b.activation("relu", c);
  EXPECT_THAT(units_of(b.build(b.global_average_pool("pool", b.add("add", {r, n})))),
              ElementsAre("conv+relu", "bn+add", "pool"));

  GraphBuilder d = builder();
  const Value first = d.batch_norm("bn1", d.input()), second = d.batch_norm("bn2", d.input());
  const Value between = d.activation("tanh", d.input(), Activation::Function::kTanh);
  const Value sum = d.add("add", {first, second});
  EXPECT_THAT(units_of(d.build(d.global_average_pool("pool", d.concat("concat", {sum, between})))),
              ElementsAre("bn1", "tanh", "bn2+add", "concat", "pool"));
}

}  // namespace
}  // namespace trainyard::nn::fusion_test
