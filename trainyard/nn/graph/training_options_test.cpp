#include "trainyard/nn/graph/training_options.h"

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/keep_mask.h"

namespace trainyard::nn::training_options_test {
namespace {

using Value = GraphBuilder::Value;

Convolution three(int64_t channels, int64_t stride = 1) {
  return {.out_channels = channels, .kernel = 3, .stride = stride, .padding = Padding::all(1)};
}

// An identity block, whose sum names the shortcut first, and one with a projection.
Graph residual() {
  GraphBuilder b({.image = {4, 8, 8}, .name = "residual"});
  Value x = b.batch_norm("bn", b.input());
  Value y = b.convolution("conv2", b.activation("relu", b.convolution("conv1", x, three(4))), three(4));
  x = b.add("block1.add", {x, y});
  y = b.convolution("conv4", b.convolution("conv3", x, three(8, 2)), three(8));
  x = b.add("block2.add", {y, b.convolution("down", x, three(8, 2))});
  x = b.add("equal", {b.convolution("left", x, three(8)), b.convolution("right", x, three(8))});
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 3}), {{"early", x.id, 0.5}});
}

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& spec : node.parameters) names.push_back(spec.name);
  }
  return names;
}

// Ids count, inputs come before their users, and outputs are the nodes that they were.
void expect_sound(const Graph& graph, const Graph& before) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(graph.nodes[i].id, static_cast<int>(i));
    for (const int input : graph.nodes[i].inputs) EXPECT_LT(input, graph.nodes[i].id);
  }
  ASSERT_EQ(graph.outputs.size(), before.outputs.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(graph.nodes[static_cast<size_t>(graph.outputs[i].node)].name,
              before.nodes[static_cast<size_t>(before.outputs[i].node)].name);
  }
  EXPECT_EQ(parameters_of(graph), parameters_of(before));
}

std::string input_name(const Graph& graph, const std::string& node, size_t input) {
  return graph.nodes[static_cast<size_t>(graph.node(node).inputs[input])].name;
}

TEST(TrainingOptions, StochasticDepthDropsTheLongerWayMoreWithDepth) {
  const Graph before = residual(), graph = with_stochastic_depth(before, 0.4);
  expect_sound(graph, before);
  EXPECT_EQ(graph.nodes.size(), before.nodes.size() + 2) << "a sum of two equal ways is no residual block";
  EXPECT_EQ(input_name(graph, "block1.add", 0), "bn");
  EXPECT_EQ(input_name(graph, "block1.add", 1), "block1.add.stochastic_depth");
  EXPECT_EQ(input_name(graph, "block1.add.stochastic_depth", 0), "conv2");
  EXPECT_EQ(input_name(graph, "block2.add", 0), "block2.add.stochastic_depth");
  EXPECT_EQ(input_name(graph, "block2.add", 1), "down");
  EXPECT_DOUBLE_EQ(std::get<StochasticDepth>(graph.node("block1.add.stochastic_depth").op).drop, 0.2);
  EXPECT_DOUBLE_EQ(std::get<StochasticDepth>(graph.node("block2.add.stochastic_depth").op).drop, 0.4);
  EXPECT_EQ(graph.node("block2.add.stochastic_depth").shape, (Shape{8, 4, 4}));
}

TEST(TrainingOptions, DropoutGetsTheRateOrAPlaceBeforeTheLastLayer) {
  const Graph before = residual(), graph = with_dropout(before, 0.3);
  expect_sound(graph, before);
  EXPECT_EQ(input_name(graph, "fc", 0), "fc.dropout");
  EXPECT_EQ(input_name(graph, "fc.dropout", 0), "pool");
  EXPECT_DOUBLE_EQ(std::get<Dropout>(graph.node("fc.dropout").op).drop, 0.3);
  const Graph again = with_dropout(graph, 0.1);
  EXPECT_EQ(again.nodes.size(), graph.nodes.size());
  EXPECT_DOUBLE_EQ(std::get<Dropout>(again.node("fc.dropout").op).drop, 0.1);
}

TEST(TrainingOptions, BatchNormDecay) {
  const Graph graph = with_batch_norm_decay(residual(), 0.25);
  EXPECT_DOUBLE_EQ(std::get<BatchNorm>(graph.node("bn").op).decay, 0.25);
}

TEST(TrainingOptions, RefusesWhatHasNoEffect) {
  GraphBuilder b({.image = {4, 8, 8}, .name = "plain"});
  const Graph plain = b.build(b.global_average_pool("pool", b.convolution("conv", b.input(), three(5))));
  constexpr auto kInvalid = core::ErrorCode::kInvalidArgument;
  EXPECT_EQ(core::message_of([&] { with_stochastic_depth(plain, 0.1); }, kInvalid),
            "there are no residual blocks for stochastic depth: plain: expected a residual network");
  EXPECT_EQ(core::message_of([&] { with_batch_norm_decay(plain, 0.1); }, kInvalid),
            "there are no batch norms to set the decay of: plain: expected a model with batch norms");
  EXPECT_EQ(input_name(with_dropout(plain, 0.1), "conv", 0), "conv.dropout");
  const Graph deep = with_stochastic_depth(residual(), 0.1);
  EXPECT_THROW(with_stochastic_depth(deep, 0.1), core::Error);
  EXPECT_THROW(with_stochastic_depth(residual(), 1.0), core::Error);
  EXPECT_THROW(with_dropout(residual(), -0.1), core::Error);
  EXPECT_THROW(with_batch_norm_decay(residual(), 1.1), core::Error);
  GraphBuilder c({.image = {4, 8, 8}, .name = "sum"});
  EXPECT_THROW(with_dropout(c.build(c.add("add", {c.input(), c.input()})), 0.1), core::Error);
}

TEST(TrainingOptions, SaysWhichRateItRefuses) {
  constexpr auto kInvalid = core::ErrorCode::kInvalidArgument;
  EXPECT_EQ(core::message_of([] { with_dropout(residual(), -0.25); }, kInvalid),
            "the rate of dropout is not usable: residual: expected a probability in [0, 1), got -0.25");
  EXPECT_EQ(core::message_of([] { with_stochastic_depth(residual(), 1); }, kInvalid),
            "the rate of stochastic depth is not usable: residual: expected a probability in [0, 1), got 1");
  EXPECT_EQ(core::message_of([] { with_batch_norm_decay(residual(), -0.5); }, kInvalid),
            "the decay of batch norms is not usable: residual: expected a number in [0, 1], got -0.5");
  EXPECT_THROW(with_dropout(residual(), std::nan("")), core::Error);
  // The ends of the ranges, which turn a layer off.
  EXPECT_EQ(std::get<BatchNorm>(with_batch_norm_decay(residual(), 0).node("bn").op).decay, 0);
  EXPECT_EQ(std::get<BatchNorm>(with_batch_norm_decay(residual(), 1).node("bn").op).decay, 1);
  EXPECT_EQ(std::get<Dropout>(with_dropout(residual(), 0).node("fc.dropout").op).drop, 0);
  const Graph none = with_stochastic_depth(residual(), 0);
  EXPECT_EQ(std::get<StochasticDepth>(none.node("block2.add.stochastic_depth").op).drop, 0);
  EXPECT_EQ(core::message_of([&] { with_stochastic_depth(none, 0.5); }, kInvalid),
            "the graph has layers of stochastic depth already: residual: expected one whose builder takes the rate");
  GraphBuilder b({.image = {4, 8, 8}, .name = "sum"});
  const Graph sum = b.build(b.add("add", {b.input(), b.input()}));
  EXPECT_EQ(core::message_of([&] { with_dropout(sum, 0.5); }, kInvalid),
            "there is no dropout, and no last layer to put one in front of: sum: expected an output of a linear layer "
            "or a convolution");
}

// Behind an activation and a pool; not beyond a layer with parameters of another kind.
TEST(TrainingOptions, TheLastLayerIsTheLastWithWeights) {
  const auto last_of = [](const auto& layers) {
    GraphBuilder b({.image = {4, 6, 6}, .name = "last"});
    const Graph graph = b.build(layers(b, b.convolution("first", b.input(), {.out_channels = 4})));
    const Node* const last = last_layer(graph, graph.outputs.front());
    return last == nullptr ? std::string("none") : last->name;
  };
  EXPECT_EQ(last_of([](GraphBuilder& b, Value x) { return b.global_average_pool("pool", b.activation("relu", x)); }),
            "first");
  EXPECT_EQ(last_of([](GraphBuilder& b, Value x) {
              return b.activation("relu", b.transposed_convolution("up", x, {.out_channels = 2}));
            }),
            "up");
  EXPECT_EQ(last_of([](GraphBuilder& b, Value x) { return b.batch_norm("bn", x); }), "none");
}

// [N, per_sample]: 0, or 1 / (1 - drop).
at::Tensor mask_of(const std::string& layer, int64_t samples, int64_t per_sample, double drop,
                   const StepRandom& random) {
  at::Tensor mask = at::empty({samples, per_sample});
  fill_keep_mask(mask.mutable_data_ptr<float>(), samples, per_sample, drop, static_cast<float>(1 / (1 - drop)), layer,
                 random);
  return mask;
}

at::Tensor output_of(const std::string& executor, const Graph& graph, Mode mode, const at::Tensor& images,
                     const StepRandom& random) {
  const at::NoGradGuard without_gradients;
  ParameterSet set;
  const auto made = make_executor(executor, graph, {.mode = mode, .parameters = &set});
  set.allocate();
  set.initialize(3);
  return made->forward(images, random).to(at::kFloat);
}

// A mask is a function of (seed, step, micro-step, layer, sample): here it is drawn again.
TEST(TrainingOptions, BranchesAreDroppedByTheirMaskOnEveryExecutor) {
  constexpr double kDrop = 0.4;
  GraphBuilder b({.image = {4, 5, 5}, .name = "block"});
  const Graph before = b.build(b.add("add", {b.input(), b.convolution("conv", b.input(), three(4))}));
  const Graph graph = with_stochastic_depth(before, kDrop);
  const at::Tensor images = at::randn({32, 4, 5, 5});
  for (const char* executor : {"reference", "cpu"}) {
    const at::Tensor whole = output_of(executor, before, Mode::kInference, images, {});
    EXPECT_TRUE(output_of(executor, graph, Mode::kInference, images, {}).allclose(whole, 1e-6, 1e-6));
    int64_t dropped = 0;
    for (const StepRandom& random :
         {StepRandom{.seed = 5}, StepRandom{.seed = 5, .step = 9}, StepRandom{.seed = 5, .step = 9, .micro_step = 1},
          StepRandom{.seed = 5, .step = 9, .first_sample = 64}}) {
      const at::Tensor mask = mask_of("add.stochastic_depth", 32, 1, kDrop, random).view({32, 1, 1, 1});
      const at::Tensor expected = images + mask * (whole - images);
      EXPECT_TRUE(output_of(executor, graph, Mode::kTraining, images, random).allclose(expected, 1e-5, 1e-5))
          << executor;
      dropped += mask.eq(0).sum().item<int64_t>();
    }
    EXPECT_GT(dropped, 25);
    EXPECT_LT(dropped, 80);
  }
}

TEST(TrainingOptions, InputsOfTheLastLayerAreDroppedByTheirMaskOnEveryExecutor) {
  constexpr double kDrop = 0.3;
  GraphBuilder b({.image = {64, 1, 1}, .name = "head"});
  const Graph graph = with_dropout(b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 7})), kDrop);
  const at::Tensor images = at::randn({16, 64, 1, 1});
  ParameterSet set;
  const auto reference = make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(3);
  const at::Tensor weight = set.value(*set.find("fc.weight")), bias = set.value(*set.find("fc.bias"));
  for (const char* executor : {"reference", "cpu"}) {
    for (const StepRandom& random : {StepRandom{.seed = 5}, StepRandom{.seed = 6, .step = 3, .first_sample = 16}}) {
      const at::Tensor mask = mask_of("fc.dropout", 16, 64, kDrop, random);
      const at::Tensor expected = at::linear(images.view({16, 64}) * mask, weight, bias);
      EXPECT_TRUE(output_of(executor, graph, Mode::kTraining, images, random).allclose(expected, 1e-5, 1e-5))
          << executor;
    }
  }
}

// The requested fraction of a mask's elements is dropped, within five standard deviations.
TEST(TrainingOptions, MasksHaveTheirDistribution) {
  for (const double drop : {0.1, 0.5, 0.9}) {
    constexpr int64_t kSamples = 200'000;
    const double found = mask_of("layer", kSamples, 1, drop, {.seed = 11}).eq(0).sum().item<double>() / kSamples;
    EXPECT_NEAR(found, drop, 5 * std::sqrt(drop * (1 - drop) / kSamples));
  }
}

}  // namespace
}  // namespace trainyard::nn::training_options_test
