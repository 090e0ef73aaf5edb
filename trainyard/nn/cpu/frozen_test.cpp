// Plans whose variables are constants: what is folded and what is not, memory that is written over, values that change.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/node_observer.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/testing/drawn_values.h"
#include "trainyard/nn/testing/kernel_names.h"
#include "trainyard/nn/testing/replica.h"

namespace trainyard::nn::frozen_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;
using Value = GraphBuilder::Value;
using Function = Activation::Function;

at::Tensor images(int64_t batch, int64_t channels = 20) {
  at::Tensor tensor = at::empty({batch, channels, 9, 10}, at::kFloat);
  fill_uniform(tensor, "images", 0, 1);
  return tensor;
}

// An executor in inference whose norms have weights, shifts and statistics that all differ.
struct Model {
  Model(const std::string& name, const Graph& graph, at::ScalarType dtype = at::kFloat,
        const KernelOptions& kernels = {})
      : set({.dtype = dtype == at::kDouble ? at::kDouble : at::kFloat}) {
    executor = make_executor(
        name, graph,
        {.dtype = dtype, .mode = Mode::kInference, .frozen = name == "cpu", .kernels = kernels, .parameters = &set});
    set.allocate();
    change("");
  }
  void change(const std::string& salt) { fill_parameters(set, salt); }
  at::Tensor run(const at::Tensor& x) { return executor->forward(x.to(executor->context().dtype), {}); }

  ParameterSet set;
  std::unique_ptr<Executor> executor;
};

// Returns the kernels that ran, in order.
std::vector<std::string> kernels_of(Model& model, const at::Tensor& x) {
  return testing::kernels_of(*model.executor, x.to(model.executor->context().dtype));
}

struct Case {
  std::string name;
  std::function<Value(GraphBuilder&, Value)> build;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

Convolution square(int64_t channels, int64_t kernel = 3) {
  return {.out_channels = channels, .kernel = kernel, .padding = Padding::all(kernel / 2)};
}

Convolution in_groups(int64_t channels, int64_t groups) {
  Convolution op = square(channels);
  op.groups = groups;
  return op;
}

Value conv_norm(GraphBuilder& b, const std::string& name, Value x, const Convolution& op) {
  return b.batch_norm(name + ".norm", b.convolution(name, x, op));
}

// An inverted residual block with `hidden` channels.
Value inverted_residual(GraphBuilder& b, const std::string& name, Value x, int64_t hidden, int64_t out,
                        int64_t stride = 1, Function function = Function::kRelu6) {
  Convolution depthwise = in_groups(hidden, hidden);
  depthwise.stride = stride;
  x = b.activation(name + ".relu1", conv_norm(b, name + ".expand", x, square(hidden, 1)), function);
  x = b.activation(name + ".relu2", conv_norm(b, name + ".depthwise", x, depthwise), function);
  return conv_norm(b, name + ".project", x, square(out, 1));
}

Case with_activation(std::string name, Function function) {
  return {std::move(name), [function](GraphBuilder& b, Value x) {
            return b.activation("activation", conv_norm(b, "conv", x, square(19)), function);
          }};
}

std::vector<Case> cases() {
  return {
      with_activation("Relu", Function::kRelu),
      with_activation("Relu6", Function::kRelu6),
      with_activation("Silu", Function::kSilu),
      with_activation("HardSwish", Function::kHardSwish),
      with_activation("Sigmoid", Function::kSigmoid),
      with_activation("Gelu", Function::kGelu),
      {"OwnBias",
       [](GraphBuilder& b, Value x) {
         Convolution op = square(24, 1);
         op.bias = true;
         return conv_norm(b, "conv", x, op);
       }},
      {"NormWithoutScale",
       [](GraphBuilder& b, Value x) {
         return b.batch_norm("norm", b.convolution("conv", x, square(24)), {.epsilon = 0.1, .scale = false});
       }},
      {"Depthwise",
       [](GraphBuilder& b, Value x) {
         return b.activation("relu", conv_norm(b, "conv", x, in_groups(20, 20)), Function::kRelu6);
       }},
      {"Groups",
       [](GraphBuilder& b, Value x) {
         return b.activation("relu", b.add("add", {conv_norm(b, "conv", x, in_groups(20, 4)), x}));
       }},
      // Kernels of our own have no such activation.
      {"GroupsThenRelu6",
       [](GraphBuilder& b, Value x) {
         return b.activation("relu", conv_norm(b, "conv", x, in_groups(20, 4)), Function::kRelu6);
       }},
      {"AdditionWithoutNorm",
       [](GraphBuilder& b, Value x) {
         return b.activation("relu", b.add("add", {b.convolution("conv", x, square(20)), x}));
       }},
      // The residual is the convolution's own input.
      {"ResidualIsTheSource",
       [](GraphBuilder& b, Value x) {
         x = b.activation("start", x);
         return b.activation("relu", b.add("add", {x, conv_norm(b, "conv", x, square(20))}));
       }},
      {"ResidualIsTheImage",
       [](GraphBuilder& b, Value x) {
         Value y = b.activation("relu1", conv_norm(b, "conv1", x, square(20)));
         return b.add("add", {x, conv_norm(b, "conv2", y, square(20))});
       }},
      // Somebody reads the residual after the addition, under another name.
      {"ResidualIsReadLater",
       [](GraphBuilder& b, Value x) {
         const Value start = b.activation("start", x);
         Value y = b.activation("relu1", conv_norm(b, "conv1", start, square(20)));
         y = b.activation("relu2", b.add("add", {conv_norm(b, "conv2", y, square(20)), b.dropout("drop", start)}));
         return b.concat("concat", {y, b.convolution("late", start, square(8, 1))});
       }},
      {"ResidualGoesOnTwice",
       [](GraphBuilder& b, Value x) {
         Value y = b.activation("start", x);
         for (const char* name : {"a", "b"}) {
           const std::string prefix = name;
           Value z = b.activation(prefix + ".relu", conv_norm(b, prefix + "1", y, square(20)));
           z = b.dropout(prefix + ".drop", conv_norm(b, prefix + "2", z, square(20)));
           y = b.add(prefix + ".add", {z, y});
         }
         return y;
       }},
      {"Downsampling",
       [](GraphBuilder& b, Value x) {
         Convolution op = square(32), down = square(32, 1);
         op.stride = down.stride = 2;
         const Value shortcut = conv_norm(b, "down", x, down);
         const Value y = b.activation("relu1", conv_norm(b, "conv1", x, op));
         return b.activation("relu2", b.add("add", {shortcut, conv_norm(b, "conv2", y, square(32))}));
       }},
      {"PreActivation",
       [](GraphBuilder& b, Value x) {
         Value y = b.activation("relu1", b.batch_norm("norm1", x));
         y = b.activation("relu2", conv_norm(b, "conv1", y, square(20)));
         y = b.add("add", {b.convolution("conv2", y, square(20)), x});
         return b.activation("relu3", b.batch_norm("norm3", y));
       }},
      {"TwoReadersOfAConvolution",
       [](GraphBuilder& b, Value x) {
         const Value y = b.convolution("conv", x, square(20));
         return b.concat("concat", {b.activation("relu", b.batch_norm("norm", y)), y});
       }},
      {"TwoReadersOfANorm",
       [](GraphBuilder& b, Value x) {
         const Value y = conv_norm(b, "conv", x, square(20));
         return b.concat("concat", {b.activation("relu", y), b.activation("tanh", y, Function::kTanh)});
       }},
      {"InvertedResiduals",
       [](GraphBuilder& b, Value x) {
         const Value start = b.activation("start", x);
         const Value y = b.add("add", {start, inverted_residual(b, "one", start, 50, 20)});
         return inverted_residual(b, "two", y, 40, 24, 2, Function::kRelu);
       }},
      {"InvertedResidualOfTheImage",
       [](GraphBuilder& b, Value x) {
         return b.add("add", {inverted_residual(b, "one", x, 50, 20), x});
       }},
      {"DepthwiseAndPointwise",
       [](GraphBuilder& b, Value x) {
         x = b.activation("relu1", conv_norm(b, "depthwise", x, in_groups(20, 20)), Function::kRelu6);
         return b.activation("relu2", conv_norm(b, "pointwise", x, square(40, 1)));
       }},
      // The residual is plain, and is converted between the block's source and its output.
      {"PlainResidualOfAnInvertedResidual",
       [](GraphBuilder& b, Value x) {
         const Value start = b.activation("start", x);
         const Value border = b.spatial_pad("border", start, {.top = 1, .bottom = -1});
         return b.add("add", {inverted_residual(b, "one", start, 50, 20), border});
       }},
      {"InvertedResidualOfSilu",
       [](GraphBuilder& b, Value x) { return inverted_residual(b, "block", x, 50, 20, 1, Function::kSilu); }},
      {"TwoReadersInAnInvertedResidual",
       [](GraphBuilder& b, Value x) {
         const Value y = b.activation("relu1", conv_norm(b, "expand", x, square(40, 1)), Function::kRelu6);
         const Value z = b.activation("relu2", conv_norm(b, "depthwise", y, in_groups(40, 40)), Function::kRelu6);
         return b.concat("concat", {conv_norm(b, "project", z, square(24, 1)), z});
       }},
      {"NormAtTheEnd",
       [](GraphBuilder& b, Value x) { return conv_norm(b, "conv", b.activation("start", x), square(17)); }},
  };
}

Graph graph_of(const Case& c, int64_t channels = 20) {
  GraphBuilder b({.image = {channels, 9, 10}, .name = c.name});
  return b.build(b.flatten("logits", c.build(b, b.input())));
}

class Frozen : public ::testing::TestWithParam<Case> {};

TEST_P(Frozen, AgreesWithVariablesInDouble) {
  const Graph graph = graph_of(GetParam());
  for (const int64_t batch : {1, 3}) {
    Model exact("reference", graph, at::kDouble), frozen("cpu", graph), sixteen("cpu", graph, at::kBFloat16);
    const at::Tensor x = images(batch).to(at::kBFloat16).to(at::kFloat);
    const at::Tensor expected = exact.run(x);
    // The conformance suite's bounds: sums of 20 * 9 terms.
    EXPECT_LE(distance(frozen.run(x), expected), 2e-6 * std::sqrt(180.0)) << "batch " << batch;
    EXPECT_LE(distance(sixteen.run(x), expected),
              std::ldexp(1.0, -7) * std::sqrt(static_cast<double>(graph.nodes.size())))
        << "batch " << batch;
    EXPECT_TRUE(at::equal(frozen.run(x), frozen.run(x))) << "memory that is written over holds nothing over";
  }
}

TEST_P(Frozen, SeesValuesThatChange) {
  const Graph graph = graph_of(GetParam());
  Model exact("reference", graph, at::kDouble), frozen("cpu", graph);
  const at::Tensor x = images(2), before = frozen.run(x);
  for (Model* model : {&exact, &frozen}) model->change("again");
  EXPECT_GT(distance(frozen.run(x), before), 0.1);
  EXPECT_LE(distance(frozen.run(x), exact.run(x)), 2e-6 * std::sqrt(180.0));
}

INSTANTIATE_TEST_SUITE_P(Cpu, Frozen, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

const Case& case_named(const std::string& name) {
  static const std::vector<Case> all = cases();
  for (const Case& c : all) {
    if (c.name == name) return c;
  }
  throw std::out_of_range(name);
}

std::vector<std::string> kernels_of(const std::string& name) {
  Model model("cpu", graph_of(case_named(name)));
  return kernels_of(model, images(2));
}

TEST(FrozenPlan, RunsABlockAsItsConvolutions) {
  EXPECT_THAT(kernels_of("Downsampling"),
              ElementsAre("to blocked layout", HasSubstr("conv 1x1"), HasSubstr("conv 3x3"),
                          ::testing::AllOf(HasSubstr("conv 3x3"), HasSubstr("+ batch norm + add + activation")),
                          "to plain layout"));
}

TEST(FrozenPlan, RunsAnInvertedResidualAtOnce) {
  if (cpu::isa() == cpu::Isa::kAvx2) GTEST_SKIP() << core::skip::kNeedsAvx512;
  const std::string block = "inverted residual";
  EXPECT_THAT(kernels_of("InvertedResiduals"),
              ElementsAre("to blocked layout", "activation", block, block, "to plain layout"));
  EXPECT_THAT(kernels_of("InvertedResidualOfTheImage"), ElementsAre("to blocked layout", block, "to plain layout"));
  EXPECT_THAT(kernels_of("DepthwiseAndPointwise"),
              ElementsAre("to blocked layout", "depthwise and 1x1 convolution", "to plain layout"));
  EXPECT_THAT(kernels_of("InvertedResidualOfSilu"), ::testing::Contains(HasSubstr("conv 3x3")));
  EXPECT_THAT(kernels_of("TwoReadersInAnInvertedResidual"), ::testing::Contains(HasSubstr("conv 3x3")));
}

// Returns the memory of what each unit computes, by the name of its first node.
std::map<std::string, const void*> memory_of(const std::string& name) {
  struct Listener : ValueObserver {
    explicit Listener(const Graph& observed) : graph(observed) {}
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.nodes.empty()) return;
      memory[graph.nodes[static_cast<size_t>(run.nodes.front())].name] = values.front().const_data_ptr();
    }
    const Graph& graph;
    std::map<std::string, const void*> memory;
  };
  Model model("cpu", graph_of(case_named(name)));
  Listener listener(model.executor->graph());
  model.executor->set_observer(&listener);
  model.run(images(2));
  model.executor->set_observer(nullptr);
  return listener.memory;
}

TEST(FrozenPlan, AddsInTheMemoryOfAResidualThatNoLaterLayerReads) {
  const auto last = memory_of("Downsampling"), source = memory_of("ResidualIsTheSource"),
             later = memory_of("ResidualIsReadLater");
  EXPECT_EQ(last.at("conv2"), last.at("down"));
  EXPECT_NE(source.at("conv"), source.at("start")) << "the convolution reads it, too";
  EXPECT_NE(later.at("conv2"), later.at("start"));
}

TEST(FrozenPlan, KeepsANormThatFollowsNoConvolution) {
  EXPECT_THAT(kernels_of("PreActivation"),
              ElementsAre("to blocked layout", "batch norm + activation", HasSubstr("+ batch norm + activation"),
                          HasSubstr("+ add"), "batch norm + activation", "to plain layout"));
}

TEST(FrozenPlan, ReadsPlainImages) {
  const Case& c = case_named("Relu");
  const Graph graph = graph_of(c, 3);
  Model exact("reference", graph, at::kDouble), frozen("cpu", graph);
  const at::Tensor x = images(2, 3);
  EXPECT_THAT(kernels_of(frozen, x), ElementsAre(HasSubstr("conv 3x3"), "to plain layout"));
  EXPECT_LE(distance(frozen.run(x), exact.run(x)), 2e-6 * std::sqrt(27.0));
}

// Wide enough for Strassen's products by the rule: GELU is part of the kernel, which adds to the residual, too.
Graph wide_graph() {
  GraphBuilder b({.image = {512, 9, 10}, .name = "wide"});
  Convolution op = square(512, 1);
  op.bias = true;
  const Value x = b.activation("start", b.input(), Function::kTanh);
  const Value y = b.activation("gelu", b.convolution("first", x, op), Function::kGelu);
  return b.build(b.flatten("logits", b.add("add", {b.convolution("second", y, op), x})));
}
KernelOptions by_rule() {
  return {.convolutions = ConvolutionPolicy::kByShape};
}

TEST(FrozenPlan, MultipliesByStrassensAlgorithm) {
  const Graph graph = wide_graph();
  Model exact("reference", graph, at::kDouble), frozen("cpu", graph, at::kFloat, by_rule()),
      sixteen("cpu", graph, at::kBFloat16, by_rule());
  const at::Tensor x = images(2, 512).to(at::kBFloat16).to(at::kFloat), expected = exact.run(x);
  EXPECT_LE(distance(frozen.run(x), expected), 5e-6);
  EXPECT_LE(distance(sixteen.run(x), expected), std::ldexp(1.0, -7) * 2);
  EXPECT_THAT(kernels_of(frozen, x), ElementsAre("to blocked layout", "activation", "conv 1x1 strassen + activation",
                                                 "conv 1x1 strassen + add", "to plain layout"));
}

// What is not finite reaches the outputs that depend on it and no others, although numbers of different pixels, inputs
// and outputs are added before they are multiplied.
TEST(FrozenPlan, StrassensAlgorithmKeepsNanWhereItBelongs) {
  for (const float spoiler : {std::nanf(""), std::numeric_limits<float>::infinity(), 3e38F}) {
    for (const bool weight : {false, true}) {
      GraphBuilder b({.image = {512, 9, 10}, .name = "wide"});
      const Graph graph = b.build(b.flatten("logits", b.convolution("conv", b.input(), square(256, 1))));
      Model exact("reference", graph), frozen("cpu", graph, at::kFloat, by_rule());
      at::Tensor x = images(2, 512);
      if (weight) {
        for (Model* model : {&exact, &frozen}) model->set.values()[1000] = spoiler;
        frozen.set.values_changed();
      } else {
        x[1][3][4][5] = spoiler;
      }
      const at::Tensor actual = frozen.run(x), expected = exact.run(x);
      EXPECT_TRUE(at::equal(actual.isnan(), expected.isnan())) << spoiler << " " << weight;
      EXPECT_TRUE(at::equal(actual.isinf(), expected.isinf())) << spoiler << " " << weight;
    }
  }
}

// Two inputs, or weights, that are added overflow, of which neither does; the outputs are small.
TEST(FrozenPlan, SumsOfStrassensAlgorithmDoNotOverflow) {
  GraphBuilder b({.image = {512, 9, 10}, .name = "wide"});
  const Graph graph = b.build(b.flatten("logits", b.convolution("conv", b.input(), square(256, 1))));
  for (const bool weight : {false, true}) {
    Model exact("reference", graph), frozen("cpu", graph, at::kFloat, by_rule());
    at::Tensor x = images(2, 512);
    for (Model* model : {&exact, &frozen}) {
      at::Tensor values = model->set.values();
      if (weight) {
        values[3 * 512 + 7] = 2e38F;
        values[131 * 512 + 263] = 2e38F;  // 128 of 256 outputs and 256 of 512 inputs behind
      } else {
        values.fill_(1e-30F);
      }
      model->set.values_changed();
    }
    if (weight) {
      x.mul_(1e-30F);
    } else {
      x[1][3][0][4] = 2e38F;
      x[1][259][4][9] = 2e38F;  // 45 of 90 pixels behind
    }
    EXPECT_LE(distance(frozen.run(x), exact.run(x)), 1e-6) << weight;
  }
}

// The convolutions of a block. Tests change one thing of them.
struct Block {
  Convolution expand = square(40, 1), depthwise = in_groups(40, 40), project = square(24, 1);
  Function last = Function::kRelu;
  bool adds = false;       // behind the first convolution
  bool is_output = false;  // what the first convolution computes
};

Graph graph_of(const Block& block) {
  GraphBuilder b({.image = {20, 9, 10}, .name = "block"});
  Value x = conv_norm(b, "expand", b.input(), block.expand);
  if (block.adds) x = b.add("add", {x, b.convolution("side", b.input(), square(40, 1))});
  const Value expanded = x = b.activation("relu1", x, Function::kRelu6);
  x = b.activation("relu2", conv_norm(b, "depthwise", x, block.depthwise), Function::kRelu6);
  x = b.flatten("logits", b.activation("last", conv_norm(b, "project", x, block.project), block.last));
  return block.is_output ? b.build(x, {{"expanded", expanded.id, 0.5}}) : b.build(x);
}

constexpr std::string_view kWhole = "inverted residual", kHalf = "depthwise and 1x1 convolution", kNone = "";

// Expects that the kernel of these blocks runs once, and no other.
void expect_block_kernel(const std::vector<std::string>& kernels, std::string_view expected) {
  for (const std::string_view name : {kWhole, kHalf}) {
    EXPECT_EQ(std::count(kernels.begin(), kernels.end(), name), name == expected ? 1 : 0) << name;
  }
}

void expect_block(const Block& block, std::string_view expected, const Fusions& fusions = {}) {
  const Graph graph = graph_of(block);
  Model exact("reference", graph, at::kDouble),
      frozen("cpu", graph, at::kFloat, {.convolutions = ConvolutionPolicy::kByShape, .fusions = fusions});
  const at::Tensor x = images(2);
  expect_block_kernel(kernels_of(frozen, x), expected);
  EXPECT_LE(distance(frozen.run(x), exact.run(x)), 1e-4);
}

TEST(FrozenPlan, RunsNoOtherBlockAsAnInvertedResidual) {
  if (cpu::isa() == cpu::Isa::kAvx2) GTEST_SKIP() << core::skip::kNeedsAvx512;
  expect_block({}, kWhole);
  Fusions without;
  without.inverted_residual = false;
  expect_block({}, kNone, without);
  expect_block({.last = Function::kSilu}, kNone);
  expect_block({.adds = true}, kHalf);
  expect_block({.is_output = true}, kHalf);
  const auto changed = [](Convolution op, const auto& change) {
    change(op);
    return op;
  };
  const Block usual{};
  using Change = std::function<void(Convolution&)>;
  const auto padded = [](int64_t top, int64_t bottom, int64_t left, int64_t right) -> Change {
    return [=](Convolution& op) { op.padding = {Padding::Kind::kExplicit, top, bottom, left, right}; };
  };
  // One dimension at a time; the strides leave no pixel over.
  const std::vector<std::pair<std::string, Change>> no_pointwise = {{"groups", [](Convolution& op) { op.groups = 4; }},
                                                                    {"kernel height",
                                                                     [](Convolution& op) {
                                                                       op.kernel = {2, 1};
                                                                     }},
                                                                    {"kernel width",
                                                                     [](Convolution& op) {
                                                                       op.kernel = {1, 2};
                                                                     }},
                                                                    {"stride height",
                                                                     [](Convolution& op) {
                                                                       op.stride = {2, 1};
                                                                     }},
                                                                    {"stride width",
                                                                     [](Convolution& op) {
                                                                       op.stride = {1, 3};
                                                                     }},
                                                                    {"top", padded(1, 0, 0, 0)},
                                                                    {"bottom", padded(0, 1, 0, 0)},
                                                                    {"left", padded(0, 0, 1, 0)},
                                                                    {"right", padded(0, 0, 0, 1)}};
  for (const auto& [name, change] : no_pointwise) {
    SCOPED_TRACE(name);
    expect_block({.expand = changed(usual.expand, change)}, kHalf);
    expect_block({.project = changed(usual.project, change)}, kNone);
  }
  const std::vector<std::pair<std::string, Change>> no_depthwise = {
      {"groups of two", [](Convolution& op) { op.groups = 20; }},
      {"two outputs a channel", [](Convolution& op) { op.out_channels = 80; }},
      {"kernel height",
       [](Convolution& op) {
         op.kernel = {5, 3};
         op.padding = Padding::symmetric(2, 1);
       }},
      {"kernel width",
       [](Convolution& op) {
         op.kernel = {3, 5};
         op.padding = Padding::symmetric(1, 2);
       }},
      {"dilated rows",
       [](Convolution& op) {
         op.dilation = {2, 1};
       }},
      {"dilated columns",
       [](Convolution& op) {
         op.dilation = {1, 2};
       }},
      {"two strides",
       [](Convolution& op) {
         op.stride = {1, 2};
       }},
      {"long strides", [](Convolution& op) { op.stride = 3; }}};
  for (const auto& [name, change] : no_depthwise) {
    SCOPED_TRACE(name);
    expect_block({.depthwise = changed(usual.depthwise, change)}, kNone);
  }
}

// The weights of 1x1 convolutions may take 2 MiB together.
TEST(FrozenPlan, RunsBlocksOfSmallWeightsAtOnce) {
  if (cpu::isa() == cpu::Isa::kAvx2) GTEST_SKIP() << core::skip::kNeedsAvx512;
  const auto kernels = [](int64_t in, int64_t hidden, int64_t out) {
    GraphBuilder b({.image = {in, 9, 10}, .name = "wide"});
    Value x = in == hidden ? b.activation("start", b.input()) : b.convolution("expand", b.input(), square(hidden, 1));
    x = b.convolution("project", b.convolution("depthwise", x, in_groups(hidden, hidden)), square(out, 1));
    Model model("cpu", b.build(b.flatten("logits", x)), at::kFloat, by_rule());
    return kernels_of(model, images(1, in));
  };
  expect_block_kernel(kernels(256, 1024, 256), kWhole);
  expect_block_kernel(kernels(256, 1024, 272), kHalf);
  expect_block_kernel(kernels(1024, 1024, 512), kHalf);
  expect_block_kernel(kernels(1024, 1024, 528), kNone);
}

TEST(FrozenPlan, IsForInferenceOnly) {
  ParameterSet set;
  try {
    make_executor("cpu", graph_of(case_named("Relu")), {.frozen = true, .parameters = &set});
    FAIL() << "no error";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "variables are constants in inference only: Relu");
  }
}

}  // namespace
}  // namespace trainyard::nn::frozen_test
