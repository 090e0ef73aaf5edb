// Graphs of several inputs and outputs, by every executor that runs them: against double, against graphs of one output,
// and against closed forms.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/nn/testing/conformance_rig.h"
#include "trainyard/nn/testing/freezing.h"

namespace trainyard::nn::several_values_test {
namespace {

using conformance::kRandom;
using conformance::relative_error;
using conformance::Rig;
using conformance::separated;

constexpr int64_t kBatch = 4;

// Two towers that meet, a head off the first of them, and a map from inside it: the output of a convolution whose
// ReLU would otherwise run in its place.
Graph towers() {
  GraphBuilder b({.image = {3, 12, 12}, .name = "towers"});
  const auto unit = [&](const std::string& name, GraphBuilder::Value x, int64_t channels, int64_t stride) {
    x = b.convolution(name, x, {.out_channels = channels, .kernel = 3, .stride = stride, .padding = Padding::all(1)});
    return b.activation(name + "/relu", b.batch_norm(name + "/bn", x));
  };
  const auto trunk = unit("trunk", b.input(), 20, 2);
  const auto map = b.convolution("map", trunk, {.out_channels = 8, .kernel = 1, .bias = true});
  const auto depth = unit("depth_tower", b.input("depth", {1, 12, 12}), 8, 2);
  auto x = b.concat("concat", {b.activation("map/relu", map), depth});
  x = b.dropout("drop", unit("top", x, 16, 1), 0.25);
  x = b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5});
  auto head = b.dropout("aux/drop", unit("aux", trunk, 6, 1), 0.5);
  head = b.linear("aux/fc", b.global_average_pool("aux/pool", head), {.out_features = 5});
  return b.build(x, {{"auxiliary", head.id, 0.4}, {"map", map.id, 0.1}});
}

core::NamedTensors inputs(at::ScalarType dtype = at::kFloat, int64_t batch = kBatch) {
  return {{"images", separated({batch, 3, 12, 12}, 2, "images").to(at::kBFloat16).to(dtype)},
          {"depth", separated({batch, 1, 12, 12}, 2, "depth").to(at::kBFloat16).to(dtype)}};
}

// A step's cost: outputs times their cotangents, weighted as the graph says.
at::Tensor cost(const Graph& graph, const core::NamedTensors& outputs) {
  at::Tensor sum;
  for (const GraphOutput& output : graph.outputs) {
    const at::Tensor& y = outputs[output.name];
    const at::Tensor term = (y * separated(y.sizes().vec(), 1, output.name).to(y.options())).sum() * output.loss_weight;
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

using Tensors = std::map<std::string, at::Tensor>;

// Outputs, gradients of inputs and parameters, and statistics of one step.
Tensors step(Rig& rig, const core::NamedTensors& given, const StepRandom& random = kRandom) {
  core::NamedTensors leaves;
  for (const auto& [name, tensor] : given) leaves.set(name, tensor.detach().clone().requires_grad_(true));
  rig.sink.begin(0, 1);
  const core::NamedTensors outputs = rig.executor->run(leaves, random);
  cost(rig.executor->graph(), outputs).backward();
  rig.sink.finish();
  Tensors results;
  for (const auto& [name, tensor] : outputs) results["output " + name] = tensor.detach();
  for (const auto& [name, tensor] : leaves) results["gradient of " + name] = tensor.grad();
  for (const Segment& segment : rig.set.segments()) {
    results["gradient of " + segment.spec.name] = rig.set.gradient(segment.id).clone();
  }
  for (int i = 0; i < static_cast<int>(rig.set.buffer_count()); ++i) {
    results[rig.set.buffer_spec(i).name] = rig.set.buffer(i).clone();
  }
  return results;
}

void expect_near(const Tensors& actual, const Tensors& expected, double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.at(name).defined()) << name;
    EXPECT_LE(relative_error(actual.at(name), tensor), bound) << name;
  }
}

class SeveralValues : public ::testing::TestWithParam<std::string> {};

TEST_P(SeveralValues, AgreeWithDouble) {
  Rig exact("reference", towers(), Mode::kTraining, at::kDouble);
  Rig rig(GetParam(), towers(), Mode::kTraining, at::kFloat);
  for (int pass = 0; pass < 2; ++pass) expect_near(step(rig, inputs()), step(exact, inputs(at::kDouble)), 2e-5);
  EXPECT_EQ(rig.executor->run(inputs(), kRandom).names(), (std::vector<std::string>{"logits", "auxiliary", "map"}));
}

TEST_P(SeveralValues, RunInBfloat16) {
  Rig exact("reference", towers(), Mode::kInference, at::kDouble);
  Rig rig(GetParam(), towers(), Mode::kInference, at::kBFloat16);
  const core::NamedTensors expected = exact.executor->run(inputs(at::kDouble), kRandom);
  for (const auto& [name, output] : rig.executor->run(inputs(at::kBFloat16), kRandom)) {
    EXPECT_EQ(output.scalar_type(), at::kFloat);
    EXPECT_LE(relative_error(output, expected[name]), 0.05) << name;
  }
}

TEST_P(SeveralValues, FoldConstantsAroundOutputs) {
  Rig exact("reference", towers(), Mode::kInference, at::kDouble);
  Rig rig(GetParam(), towers(), Mode::kInference, at::kFloat, at::kCPU, /*frozen=*/true);
  const core::NamedTensors expected = exact.executor->run(inputs(at::kDouble), kRandom);
  const at::NoGradGuard no_grad;
  for (int pass = 0; pass < 2; ++pass) {
    for (const auto& [name, output] : rig.executor->run(inputs(), kRandom)) {
      EXPECT_LE(relative_error(output, expected[name]), 2e-5) << name;
      EXPECT_FALSE(output.requires_grad());
    }
  }
}

// The gradient of a weighted sum is the weighted sum of those that the outputs have alone, each in a graph of its own.
TEST_P(SeveralValues, AddUpTheGradientsOfEachOutputAlone) {
  const Graph whole = towers();
  Rig rig(GetParam(), whole, Mode::kTraining, at::kFloat);
  Tensors actual = step(rig, inputs());
  Tensors sum;
  for (const GraphOutput& output : whole.outputs) {
    Graph alone = whole;
    alone.outputs = {output};
    alone = main_output_graph(alone);
    Rig own(GetParam(), alone, Mode::kTraining, at::kFloat);
    core::NamedTensors given;
    for (const int id : alone.inputs()) {
      const std::string& name = std::get<Input>(alone.nodes[static_cast<size_t>(id)].op).name;
      given.set(name, inputs()[name]);
    }
    for (const Segment& segment : own.set.segments()) {
      own.set.value(segment.id).copy_(rig.set.value(*rig.set.find(segment.spec.name)));
    }
    own.set.values_changed();
    for (const auto& [name, tensor] : step(own, given)) {
      if (!name.starts_with("gradient of ")) continue;
      auto [place, is_new] = sum.try_emplace(name, tensor);
      if (!is_new) place->second = place->second + tensor;
    }
  }
  std::erase_if(actual, [](const auto& item) { return !item.first.starts_with("gradient of "); });
  expect_near(actual, sum, 1e-5);
}

TEST_P(SeveralValues, CountAnOutputThatBackwardLeavesOutAsZero) {
  const Graph main = main_output_graph(towers());
  // What was measured may differ between the convolutions of the two graphs, which would round differently.
  const KernelOptions kernels{.convolutions = ConvolutionPolicy::kByShape};
  Rig rig(GetParam(), towers(), Mode::kTraining, at::kFloat, at::kCPU, false, kernels);
  Rig alone(GetParam(), main, Mode::kTraining, at::kFloat, at::kCPU, false, kernels);
  for (Rig* each : {&rig, &alone}) {
    each->set.gradients().fill_(7);
    each->sink.begin(0, 1);
    each->executor->run(inputs(), kRandom)["logits"].square().sum().backward();
    each->sink.finish();
  }
  for (const Segment& segment : rig.set.segments()) {
    const std::string& name = segment.spec.name;
    const at::Tensor gradient = rig.set.gradient(*rig.set.find(name));
    if (const auto same = alone.set.find(name)) {
      EXPECT_LE(relative_error(gradient, alone.set.gradient(*same)), 1e-6) << name;
    } else {
      EXPECT_TRUE(name.starts_with("aux")) << name;
      EXPECT_EQ(gradient.count_nonzero().item<int64_t>(), 0) << name;
    }
  }
}

TEST_P(SeveralValues, AddUpMicroSteps) {
  Rig rig(GetParam(), towers(), Mode::kTraining, at::kFloat);
  at::Tensor sum = at::zeros_like(rig.set.gradients());
  for (const int64_t first : {0, 8}) {
    step(rig, inputs(), {.seed = 5, .first_sample = first});
    sum += rig.set.gradients();
  }
  for (int micro_step = 0; micro_step < 2; ++micro_step) {
    rig.sink.begin(micro_step, 2);
    cost(towers(), rig.executor->run(inputs(), {.seed = 5, .first_sample = 8 * micro_step})).backward();
    rig.sink.finish();
  }
  EXPECT_LE(relative_error(rig.set.gradients(), sum), 1e-6);
}

TEST_P(SeveralValues, FreezeOutputByOutput) {
  Rig exact("reference", towers(), Mode::kTraining, at::kDouble),
      rig(GetParam(), towers(), Mode::kTraining, at::kFloat);
  for (Rig* each : {&exact, &rig}) {
    freezing::freeze(each->set, [](std::string_view name) { return !name.starts_with("aux"); });
  }
  const core::NamedTensors outputs = rig.executor->run(inputs(), kRandom);
  exact.executor->run(inputs(at::kDouble), kRandom);  // statistics move in each pass
  EXPECT_FALSE(outputs["logits"].requires_grad());
  EXPECT_FALSE(outputs["map"].requires_grad());
  EXPECT_TRUE(outputs["auxiliary"].requires_grad());
  expect_near(step(rig, inputs()), step(exact, inputs(at::kDouble)), 2e-5);  // inputs want a gradient there
}

TEST_P(SeveralValues, GiveTheGradientOfOneInput) {
  Rig rig(GetParam(), towers(), Mode::kTraining, at::kFloat), both(GetParam(), towers(), Mode::kTraining, at::kFloat);
  const Tensors expected = step(both, inputs());
  core::NamedTensors given = inputs();
  given.set("depth", given["depth"].clone().requires_grad_(true));
  rig.sink.begin(0, 1);
  cost(towers(), rig.executor->run(given, kRandom)).backward();
  EXPECT_LE(relative_error(given["depth"].grad(), expected.at("gradient of depth")), 1e-6);
  EXPECT_FALSE(given["images"].grad().defined());
}

// One number that is not finite shows in the same outputs, as in the reference.
TEST_P(SeveralValues, KeepNanWhereItIs) {
  Rig exact("reference", towers(), Mode::kTraining, at::kDouble),
      rig(GetParam(), towers(), Mode::kTraining, at::kFloat);
  core::NamedTensors given = inputs(at::kDouble);
  given["depth"].select(0, 1).view({-1})[17] = std::nan("");
  const core::NamedTensors expected = exact.executor->run(given, kRandom);
  const core::NamedTensors actual = rig.executor->run(
      {{"images", given["images"].to(at::kFloat)}, {"depth", given["depth"].to(at::kFloat)}}, kRandom);
  for (const auto& [name, output] : actual) {
    EXPECT_TRUE(at::equal(output.isfinite(), expected[name].isfinite())) << name;
  }
  EXPECT_TRUE(actual["auxiliary"].isfinite().all().item<bool>());
  EXPECT_FALSE(actual["logits"].isfinite().all().item<bool>());
}

TEST_P(SeveralValues, SayWhatIsWrongWithWhichInput) {
  Rig rig(GetParam(), towers(), Mode::kTraining, at::kFloat);
  const auto message = [&](const core::NamedTensors& given, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    return core::message_of([&] { rig.executor->run(given, {}); }, code);
  };
  const at::Tensor images = inputs()["images"], depth = inputs()["depth"];
  EXPECT_EQ(message({{"images", images}, {"dept", depth}}, core::ErrorCode::kNotFound),
            "unknown input of towers 'dept'; did you mean 'depth'? known: images, depth");
  EXPECT_EQ(message({{"images", images}}), "the input 'depth' is missing: towers: expected images, depth, got images");
  EXPECT_EQ(core::message_of([&] { rig.executor->forward(images, {}); }), message({{"images", images}}));
  EXPECT_EQ(message({{"images", images}, {"depth", images}}),
            "the input 'depth' does not fit the model: towers: expected a batch of [1, 12, 12] of a float type, got "
            "[4, 3, 12, 12] of Float");
  EXPECT_EQ(message({{"images", images}, {"depth", depth.to(at::kByte)}}),
            "the input 'depth' does not fit the model: towers: expected a batch of [1, 12, 12] of a float type, got "
            "[4, 1, 12, 12] of Byte");
  EXPECT_EQ(message({{"images", images}, {"depth", depth.narrow(0, 0, 3)}}),
            "the input 'depth' does not fit the others: towers: expected a batch of 4, got [3, 1, 12, 12] of Float");
  EXPECT_EQ(message({{"images", images}, {"depth", at::Tensor()}}),
            "the input 'depth' does not fit the model: towers: expected a batch of [1, 12, 12] of a float type, got an "
            "undefined tensor");
}

// y = A x + B z, u = C x, cost = p.y + 0.5 q.u: gradients are outer products.
TEST_P(SeveralValues, HaveTheGradientsOfLinearAlgebra) {
  GraphBuilder b({.image = {3}, .name = "linear", .input = "x"});
  const auto z = b.input("z", {4});
  const auto y = b.add("y", {b.linear("a", b.input(), {.out_features = 2, .bias = false}),
                             b.linear("b", z, {.out_features = 2, .bias = false})});
  const auto u = b.linear("c", b.input(), {.out_features = 2, .bias = false});
  const Graph graph = b.build({{"sum", y.id}, {"side", u.id, 0.5}});
  Rig rig(GetParam(), graph, Mode::kTraining, at::kFloat);
  const core::NamedTensors given{{"x", separated({5, 3}, 1, "x").to(at::kFloat)},
                                 {"z", separated({5, 4}, 1, "z").to(at::kFloat)}};
  const Tensors actual = step(rig, given);
  const at::Tensor p = separated({5, 2}, 1, "sum").to(at::kFloat), q = separated({5, 2}, 1, "side").to(at::kFloat) / 2;
  const auto weight = [&](const char* name) { return rig.set.value(*rig.set.find(name)); };
  const Tensors expected{{"output sum", given["x"].mm(weight("a.weight").t()) + given["z"].mm(weight("b.weight").t())},
                         {"output side", given["x"].mm(weight("c.weight").t())},
                         {"gradient of a.weight", p.t().mm(given["x"])},
                         {"gradient of b.weight", p.t().mm(given["z"])},
                         {"gradient of c.weight", q.t().mm(given["x"])},
                         {"gradient of x", p.mm(weight("a.weight")) + q.mm(weight("c.weight"))},
                         {"gradient of z", p.mm(weight("b.weight"))}};
  expect_near(actual, expected, 1e-6);
}

// An input as an output, one value under two names, and an output that another output is made of.
TEST_P(SeveralValues, MayBeTheSameValue) {
  GraphBuilder b({.image = {3, 4, 4}, .name = "same"});
  const auto x = b.activation("relu", b.convolution("conv", b.input(), {.out_channels = 5, .kernel = 1, .bias = true}));
  const auto y = b.activation("tanh", x, Activation::Function::kTanh);
  const Graph graph = b.build({{"y", y.id}, {"again", y.id, 0.5}, {"x", x.id, 0.25}, {"image", 0}});
  Rig exact("reference", graph, Mode::kTraining, at::kDouble), rig(GetParam(), graph, Mode::kTraining, at::kFloat);
  const at::Tensor images = separated({2, 3, 4, 4}, 2, "images");
  const Tensors actual = step(rig, {{"images", images.to(at::kFloat)}});
  expect_near(actual, step(exact, {{"images", images}}), 1e-5);
  EXPECT_TRUE(at::equal(actual.at("output y"), actual.at("output again")));
  EXPECT_TRUE(at::equal(actual.at("output image"), images.to(at::kFloat)));
}

// y_k = x W_k z + b_k, as torch.nn.Bilinear.
class Bilinear : public torch::nn::Module {
 public:
  Bilinear() {
    weight_ = register_parameter("weight", separated({2, 3, 4}, 1, "bilinear").to(at::kFloat));
    bias_ = register_parameter("bias", at::zeros({2}));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& z) {
    return at::einsum("ni,kij,nj->nk", {x, weight_, z}) + bias_;
  }

 private:
  at::Tensor weight_, bias_;
};

TEST_P(SeveralValues, GoThroughForeignModules) {
  const auto make = [] { return std::make_shared<Bilinear>(); };
  GraphBuilder b({.image = {3}, .name = "foreign"});
  const auto z = b.input("z", {4});
  EXPECT_EQ(core::message_of([&] { b.foreign("wrong", z, foreign_op<2>(make, {2}, "Bilinear")); }),
            "its module takes 2 tensors, the node has 1 inputs: foreign 'wrong'");
  const auto y = b.foreign("bilinear", {b.input(), z}, foreign_op<2>(make, {2}, "Bilinear"));
  Rig rig(GetParam(), b.build(y), Mode::kTraining, at::kFloat);
  const at::Tensor x = separated({5, 3}, 1, "x").to(at::kFloat), w = separated({5, 4}, 1, "w").to(at::kFloat);
  const Tensors actual = step(rig, {{"images", x}, {"z", w}});
  const at::Tensor weight = rig.set.value(*rig.set.find("bilinear.weight"));
  const at::Tensor p = separated({5, 2}, 1, "logits").to(at::kFloat);
  const auto sum = [](const char* formula, const std::vector<at::Tensor>& terms) { return at::einsum(formula, terms); };
  const Tensors expected{
      {"output logits", sum("ni,kij,nj->nk", {x, weight, w}) + rig.set.value(*rig.set.find("bilinear.bias"))},
      {"gradient of bilinear.weight", sum("nk,ni,nj->kij", {p, x, w})},
      {"gradient of bilinear.bias", p.sum(0)},
      {"gradient of images", sum("nk,kij,nj->ni", {p, weight, w})},
      {"gradient of z", sum("nk,kij,ni->nj", {p, weight, x})}};
  expect_near(actual, expected, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Executors, SeveralValues, ::testing::Values("reference", "cpu"),
                         [](const auto& executor) { return executor.param; });

// The same bits with less memory, for a graph whose head leaves the trunk in the middle. The rule chooses convolutions:
// on maps as small as these the scratch of an algorithm that is measured to be faster may outweigh what is not kept.
TEST(SeveralValuesOfThePlan, AreMadeAgainBitForBit) {
  const KernelOptions by_rule{.convolutions = ConvolutionPolicy::kByShape};
  Rig all("cpu", towers(), Mode::kTraining, at::kFloat, at::kCPU, false, by_rule);
  const Tensors expected = step(all, inputs());
  for (const Recomputation recomputation : {Recomputation::kElementwise, Recomputation::kBlocks}) {
    KernelOptions kernels = by_rule;
    kernels.recomputation = recomputation;
    Rig rig("cpu", towers(), Mode::kTraining, at::kFloat, at::kCPU, false, kernels);
    EXPECT_LE(rig.executor->prepare(kBatch)->activations, all.executor->prepare(kBatch)->activations);
    const Tensors actual = step(rig, inputs());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(actual.at(name), tensor)) << name;
  }
}

TEST(SeveralValuesOfThePlan, EndTogether) {
  Rig rig("cpu", towers(), Mode::kTraining, at::kFloat);
  const core::NamedTensors outputs = rig.executor->run(inputs(), kRandom);
  rig.sink.begin(0, 1);
  outputs["logits"].sum().backward();
  EXPECT_EQ(core::message_of([&] { outputs["auxiliary"].sum().backward(); }).substr(0, 45),
            "backward was called a second time for one for");
}

}  // namespace
}  // namespace trainyard::nn::several_values_test
