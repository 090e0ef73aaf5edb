// What the CPU plan promises beyond single layers: several passes at a time, batch sizes, values that change, modes.

#include "trainyard/nn/cpu/cpu_executor.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/testing/kernel_names.h"
#include "trainyard/nn/testing/replica.h"

namespace trainyard::nn::cpu_executor_test {
namespace {

// A residual block with a shortcut, pooling, dropout; what has a kernel and what runs through ATen.
Graph block_graph() {
  GraphBuilder b({.image = {3, 12, 12}, .name = "block"});
  const auto conv = [&](const std::string& name, GraphBuilder::Value x, int64_t stride) {
    return b.convolution(name, x, {.out_channels = 20, .kernel = 3, .stride = stride, .padding = Padding::all(1)});
  };
  auto x = b.activation("relu0", b.batch_norm("bn0", conv("conv0", b.input(), 1)));
  const auto start = b.max_pool("pool0", x, {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  x = b.activation("relu1", b.batch_norm("bn1", conv("conv1", start, 2)));
  x = b.batch_norm("bn2", conv("conv2", x, 1));
  x = b.activation("relu2", b.add("add", {x, b.batch_norm("bn3", conv("conv3", start, 2))}));
  x = b.adaptive_average_pool("same", b.channel_shuffle("shuffle", x, 4), {3, 3});
  x = b.dropout("drop", b.concat("concat", {x, b.activation("silu", x, Activation::Function::kSilu)}), 0.25);
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
}

at::Tensor images(int64_t batch, double phase = 0) {
  return (at::linspace(-2, 2, batch * 432) * 37 + phase).sin().view({batch, 3, 12, 12});
}
at::Tensor labels(int64_t batch) {
  return at::linspace(0, 4.99, batch).to(at::kLong);
}

struct BlockReplica : Replica {
  explicit BlockReplica(const std::string& name, at::ScalarType dtype = at::kFloat, const Graph& graph = block_graph())
      : Replica(name, graph, dtype) {}
  at::Tensor loss(const at::Tensor& x) {
    const at::Tensor input = set.dtype() == at::kDouble ? x.to(at::kDouble) : x;
    return softmax_cross_entropy(executor->forward(input, {.seed = 3}), labels(x.size(0)));
  }
  at::Tensor gradients_of(const at::Tensor& x) {
    sink.begin(0, 1);
    loss(x).backward();
    sink.finish();
    return set.gradients().clone();
  }
};

TEST(CpuExecutor, AgreesWithTheReference) {
  BlockReplica cpu("cpu"), reference("reference", at::kDouble);
  EXPECT_LT(distance(cpu.gradients_of(images(4)), reference.gradients_of(images(4))), 1e-5);
  for (int i = 0; i < static_cast<int>(cpu.set.buffer_count()); ++i) {
    EXPECT_LT(distance(cpu.set.buffer(i), reference.set.buffer(i)), 1e-5) << cpu.set.buffer_spec(i).name;
  }
}

// Few samples have kernels, more go through ATen.
TEST(CpuExecutor, LinearLayersAddTheirBiasAtEachBatchSize) {
  for (const bool bias : {true, false}) {
    GraphBuilder b({.image = {3, 12, 12}, .name = "linear"});
    const Graph graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 5, .bias = bias}));
    const auto logits = [&](const char* name, int64_t batch) {
      ParameterSet set;
      const auto executor = make_executor(name, graph, {.mode = Mode::kInference, .parameters = &set});
      set.allocate();
      set.initialize(3);
      if (bias) set.value(*set.find("fc.bias")).copy_(at::linspace(1, 5, 5));
      set.values_changed();
      return executor->forward(images(batch), {});
    };
    for (const int64_t batch : {1, 4, 5, 9, 16, 17}) {
      EXPECT_LT(distance(logits("cpu", batch), logits("reference", batch)), 1e-6) << batch << bias;
    }
  }
}

// In 16 bits, products are in bfloat16 from five samples on, where the processor has them.
TEST(CpuExecutor, LinearLayersHaveTheirGradientsAtEachBatchSize) {
  GraphBuilder b({.image = {3, 12, 12}, .name = "linear"});
  const auto hidden = b.linear("hidden", b.flatten("flat", b.input()), {.out_features = 33});
  const auto bent = b.activation("silu", hidden, Activation::Function::kSilu);
  const Graph graph = b.build(b.linear("fc", bent, {.out_features = 5}));
  for (const int64_t batch : {1, 4, 5, 9, 16, 17}) {
    BlockReplica reference("reference", at::kDouble, graph);
    const at::Tensor expected = reference.gradients_of(images(batch));
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const double bound = dtype == at::kFloat ? 1e-5 : 0x1p-7 * std::sqrt(2.0);
      BlockReplica cpu("cpu", dtype, graph);
      EXPECT_LT(distance(cpu.gradients_of(images(batch)), expected), bound) << batch << ' ' << toString(dtype);
    }
  }
}

// Vectors of a linear layer, of a pool and of a flattened map: each of their three readers gives them a gradient.
TEST(CpuExecutor, AddsUpTheGradientsOfVectorsThatSeveralLayersRead) {
  using Value = GraphBuilder::Value;
  const std::vector<std::pair<std::string, std::function<Value(GraphBuilder&, Value)>>> vectors = {
      {"linear", [](GraphBuilder& b, Value x) { return b.linear("v", b.flatten("flat", x), {.out_features = 33}); }},
      {"pool", [](GraphBuilder& b, Value x) { return b.global_average_pool("v", x); }},
      {"flatten", [](GraphBuilder& b, Value x) { return b.flatten("v", x); }}};
  for (const auto& [name, build] : vectors) {
    GraphBuilder b({.image = {3, 12, 12}, .name = name});
    const Value v = build(b, b.convolution("conv", b.input(), {.out_channels = 6, .kernel = 3, .stride = 3}));
    const auto fc = [&](const char* layer, Value x) { return b.linear(layer, x, {.out_features = 5}); };
    const Graph graph =
        b.build(b.add("sum", {fc("fc1", b.activation("silu", v, Activation::Function::kSilu)), fc("fc2", v),
                              fc("fc3", b.activation("tanh", v, Activation::Function::kTanh))}));
    BlockReplica cpu("cpu", at::kFloat, graph), reference("reference", at::kDouble, graph);
    EXPECT_LT(distance(cpu.gradients_of(images(4)), reference.gradients_of(images(4))), 1e-5) << name;
  }
}

// Fewer samples would gain nothing by it: the same weights are read.
TEST(CpuExecutor, LinearLayersMultiplyInBfloat16FromFiveSamplesOn) {
  if (cpu::isa() != cpu::Isa::kAvx512Bf16) GTEST_SKIP() << core::skip::kNeedsAvx512Bf16;
  GraphBuilder b({.image = {3, 12, 12}, .name = "linear"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 5}));
  BlockReplica sixteen("cpu", at::kBFloat16, graph), floats("cpu", at::kFloat, graph);
  for (const int64_t batch : {1, 4, 5, 9}) {
    const at::Tensor logits = sixteen.executor->forward(images(batch), {}).detach();
    EXPECT_EQ(at::equal(logits, floats.executor->forward(images(batch), {}).detach()), batch < 5) << batch;
  }
}

GraphBuilder::Value convolution_of(GraphBuilder& b, const std::string& name, GraphBuilder::Value x, int64_t channels) {
  return b.convolution(name, x, {.out_channels = channels, .kernel = 3, .padding = Padding::all(1)});
}
Graph classifier(GraphBuilder& b, GraphBuilder::Value map) {
  return b.build(b.linear("fc", b.global_average_pool("pool", map), {.out_features = 5}));
}

// The image wants no gradient: the sum needs one for its other term, wherever that stands.
TEST(CpuExecutor, ASumOfTheImageAndALayerTrainsTheLayer) {
  for (const bool image_first : {true, false}) {
    GraphBuilder b({.image = {3, 12, 12}, .name = "sum"});
    const auto image = b.input(), conv = convolution_of(b, "conv", image, 3);
    const auto sum = image_first ? b.add("add", {image, conv}) : b.add("add", {conv, image});
    const Graph graph = classifier(b, b.activation("relu", sum));
    BlockReplica cpu("cpu", at::kFloat, graph), reference("reference", at::kDouble, graph);
    EXPECT_LT(distance(cpu.gradients_of(images(4)), reference.gradients_of(images(4))), 1e-5) << image_first;
  }
}

// The image wants no gradient, nor does what is frozen: a layer's other input has its own all the same.
TEST(CpuExecutor, TrainsWhicheverInputOfALayerNeedsIt) {
  using Value = GraphBuilder::Value;
  const auto gate = [](GraphBuilder& b, const std::string& name, Value x) {
    return b.linear(name, b.global_average_pool(name + ".pool", x), {.out_features = 3});
  };
  const auto conv = [](GraphBuilder& b, Value x) { return convolution_of(b, "conv", x, 3); };
  const std::vector<std::pair<std::string, std::function<Value(GraphBuilder&, Value)>>> layers = {
      {"factors", [&](GraphBuilder& b, Value x) { return b.multiply("layer", x, gate(b, "gate", x)); }},
      {"map", [&](GraphBuilder& b, Value x) { return b.multiply("layer", conv(b, x), gate(b, "frozen.gate", x)); }},
      {"residual of a layer scale",
       [&](GraphBuilder& b, Value x) {
         const Value scaled = b.layer_scale("frozen.scale", x, {.init = Initializer::constant(0.5)});
         return b.add("layer", {scaled, conv(b, x)});
       }},
      {"residual of a norm",
       [&](GraphBuilder& b, Value x) {
         const Value normed = b.batch_norm("frozen.norm", x);
         return b.activation("relu", b.add("layer", {normed, conv(b, x)}));
       }},
      {"first part",
       [&](GraphBuilder& b, Value x) {
         return b.concat("layer", {conv(b, x), x});
       }},
      {"last part", [&](GraphBuilder& b, Value x) {
         return b.concat("layer", {x, conv(b, x)});
       }}};
  for (const auto& [name, build] : layers) {
    GraphBuilder b({.image = {3, 12, 12}, .name = "inputs"});
    const Graph graph = classifier(b, build(b, b.input()));
    BlockReplica cpu("cpu", at::kFloat, graph), reference("reference", at::kDouble, graph);
    for (BlockReplica* replica : {&cpu, &reference}) {
      for (const Segment& segment : replica->set.segments()) {
        replica->set.set_trainable(segment.id, !segment.spec.name.starts_with("frozen"));
      }
    }
    EXPECT_LT(distance(cpu.gradients_of(images(4)), reference.gradients_of(images(4))), 1e-5) << name;
    for (const Segment& segment : cpu.set.segments()) {
      const bool has_gradient = cpu.set.gradient(segment.id).count_nonzero().item<int64_t>() > 0;
      EXPECT_EQ(has_gradient, cpu.set.trainable(segment.id)) << name << ", " << segment.spec.name;
    }
  }
}

// Both terms of the outer sum get one gradient. The ReLU of the inner sum sets it to zero at places, for its own terms
// only.
TEST(CpuExecutor, AReluBehindASumLeavesTheGradientOfOthersAlone) {
  GraphBuilder b({.image = {3, 12, 12}, .name = "sums"});
  const auto image = b.input(), beside = convolution_of(b, "beside", image, 16);
  const auto inner = b.add("inner", {convolution_of(b, "a", image, 16), convolution_of(b, "b", image, 16)});
  const Graph graph = classifier(b, b.add("outer", {b.activation("relu", inner), beside}));
  BlockReplica cpu("cpu", at::kFloat, graph), reference("reference", at::kDouble, graph);
  EXPECT_LT(distance(cpu.gradients_of(images(4)), reference.gradients_of(images(4))), 1e-5);
}

// Terms of 3e38 are finite, their sum is not. What a ReLU behind the next layer makes of infinity minus infinity is
// NaN, which must reach the loss.
TEST(CpuExecutor, ASumThatOverflowsShowsBehindARelu) {
  GraphBuilder b({.image = {3, 12, 12}, .name = "overflow"});
  const auto image = b.input();
  const auto small0 = convolution_of(b, "small0", image, 16), large0 = convolution_of(b, "large0", image, 16);
  const auto small1 = convolution_of(b, "small1", image, 16), large1 = convolution_of(b, "large1", image, 16);
  const auto sum = b.add("sum", {large0, large1});
  const auto relu = b.activation("relu", convolution_of(b, "conv", sum, 16));
  const Graph graph = classifier(b, b.add("all", {relu, small0, small1}));
  for (const char* name : {"cpu", "reference"}) {
    ParameterSet set;
    const auto executor = make_executor(
        name, graph,
        {.mode = Mode::kInference, .kernels = {.convolutions = ConvolutionPolicy::kByShape}, .parameters = &set});
    set.allocate();
    set.values().zero_();
    for (const char* layer : {"small0", "small1", "large0", "large1"}) {
      const bool small = std::string_view(layer).starts_with("small");
      set.value(*set.find(std::string(layer) + ".weight")).select(2, 1).select(2, 1).fill_(small ? 1e-30 : 1e8);
    }
    at::Tensor weight = set.value(*set.find("conv.weight"));
    weight.narrow(1, 0, 8).fill_(1);
    weight.narrow(1, 8, 8).fill_(-1);
    set.value(*set.find("fc.weight")).fill_(1);
    set.values_changed();
    const at::Tensor logits = executor->forward(at::zeros({1, 3, 12, 12}).fill_(1e30), {});
    EXPECT_TRUE(logits.isnan().all().item<bool>()) << name << logits;
  }
}

// Two forwards wait for their backwards, which come in either order; neither sees the other's memory.
TEST(CpuExecutor, KeepsTwoPassesApart) {
  BlockReplica replica("cpu"), alone("cpu");
  const at::Tensor first = alone.gradients_of(images(4)), second = alone.gradients_of(images(4, 1));
  for (const bool reversed : {false, true}) {
    replica.sink.begin(0, 1);
    const at::Tensor a = replica.loss(images(4)), b = replica.loss(images(4, 1));
    (reversed ? b : a).backward();
    const at::Tensor gradients = replica.set.gradients().clone();
    EXPECT_TRUE(at::equal(gradients, reversed ? second : first));
    replica.sink.finish();
    replica.sink.begin(0, 1);
    (reversed ? a : b).backward();
    EXPECT_TRUE(at::equal(replica.set.gradients(), reversed ? first : second));
    replica.sink.finish();
  }
}

TEST(CpuExecutor, ForgetsAPassThatNobodyWaitsFor) {
  BlockReplica replica("cpu"), alone("cpu");
  { const at::Tensor unused = replica.loss(images(4, 2)); }
  EXPECT_TRUE(at::equal(replica.gradients_of(images(4)), alone.gradients_of(images(4))));
}

TEST(CpuExecutor, RunsOneBackwardForAForward) {
  BlockReplica replica("cpu");
  replica.sink.begin(0, 1);
  const at::Tensor loss = replica.loss(images(2));
  loss.backward({}, true);
  replica.sink.finish();
  EXPECT_EQ(core::message_of([&] { loss.backward(); }),
            "backward was called a second time for one forward pass; run forward again: the CPU plan gives its memory "
            "back after the backward");
  // The executor still works as a new one does.
  BlockReplica alone("cpu");
  EXPECT_TRUE(at::equal(replica.gradients_of(images(2)), alone.gradients_of(images(2))));
}

// There are more sizes than plans are kept.
TEST(CpuExecutor, TakesAnyBatchSize) {
  BlockReplica replica("cpu"), reference("reference", at::kDouble);
  for (const int64_t batch : {4, 1, 3, 2, 5, 4, 7, 1, 4}) {
    if (batch == 1)
      continue;  // the batch norm behind two strides still has 9 pixels, but its gradient is ill-conditioned
    EXPECT_LT(distance(replica.gradients_of(images(batch)), reference.gradients_of(images(batch))), 1e-5) << batch;
  }
}

// Kernels have scratch memory for each thread of the team that the plan was made for.
TEST(CpuExecutor, TakesATeamOfAnySize) {
  GraphBuilder b({.image = {64, 12, 12}, .name = "teams"});
  const auto conv = [&](const std::string& name, GraphBuilder::Value x, int64_t kernel, int64_t groups = 1) {
    return b.convolution(
        name, x,
        {.out_channels = 64, .kernel = kernel, .padding = Padding::all(kernel / 2), .groups = groups, .bias = true});
  };
  auto x = b.activation("relu", conv("winograd", b.input(), 3));
  x = b.activation("relu6", conv("depthwise", x, 3, 64), Activation::Function::kRelu6);
  x = conv("pointwise", x, 1);
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
  const at::Tensor x0 = (at::linspace(-2, 2, 2 * 64 * 144) * 37).sin().view({2, 64, 12, 12});
  const auto run = [&](const std::vector<int>& teams) {
    ParameterSet set;
    const auto executor = make_executor("cpu", graph,
                                        {.mode = Mode::kInference,
                                         .frozen = true,
                                         .kernels = {.convolutions = ConvolutionPolicy::kWinograd},
                                         .parameters = &set});
    set.allocate();
    set.initialize(3);
    const int before = omp_get_max_threads();
    at::Tensor result;
    for (const int team : teams) {
      omp_set_num_threads(team);
      result = executor->forward(x0, {});
    }
    omp_set_num_threads(before);
    return result;
  };
  EXPECT_TRUE(at::equal(run({1, 4}), run({4})));
  EXPECT_TRUE(at::equal(run({4, 1}), run({1})));
}

// A thread with a larger team than the forward's runs its backward: scratch memory is that of the forward's team.
TEST(CpuExecutor, ABackwardHasNoLargerTeamThanItsForward) {
  struct Teams : NodeObserver {
    void ran(const NodeRun& run) override {
      (run.phase == NodeRun::Phase::kForward ? forward : backward).insert(omp_get_max_threads());
    }
    std::set<int> forward, backward;
  } teams;
  BlockReplica replica("cpu");
  replica.executor->set_observer(&teams);
  const int before = omp_get_max_threads();
  omp_set_num_threads(2);
  replica.sink.begin(0, 1);
  const at::Tensor loss = replica.loss(images(2));
  omp_set_num_threads(5);
  loss.backward();
  const int after = omp_get_max_threads();
  omp_set_num_threads(before);
  replica.sink.finish();
  replica.executor->set_observer(nullptr);
  EXPECT_EQ(teams.forward, std::set<int>{2});
  EXPECT_EQ(teams.backward, std::set<int>{2});
  EXPECT_EQ(after, 5);
}

TEST(CpuExecutor, SeesChangedValues) {
  BlockReplica replica("cpu"), reference("reference", at::kDouble);
  for (int step = 0; step < 4; ++step) {
    const at::Tensor gradients = reference.gradients_of(images(4, step));
    EXPECT_LT(distance(replica.gradients_of(images(4, step)), gradients), 1e-5) << step;
    for (BlockReplica* changed : {&replica, &reference}) {
      const at::NoGradGuard no_grad;
      changed->set.values().add_(gradients.to(changed->set.dtype()), -0.05);
      changed->set.values_changed();
    }
  }
}

TEST(CpuExecutor, AddsUpMicroSteps) {
  BlockReplica whole("cpu"), split("cpu");
  const at::Tensor expected = whole.gradients_of(images(3)) + whole.gradients_of(images(3, 1));
  for (int micro_step = 0; micro_step < 2; ++micro_step) {
    split.sink.begin(micro_step, 2);
    split.loss(images(3, micro_step)).backward();
    split.sink.finish();
  }
  EXPECT_LT(distance(split.set.gradients(), expected), 1e-6);
}

TEST(CpuExecutor, EvaluatesBesideTraining) {
  BlockReplica replica("cpu"), reference("reference");
  const auto make = [](BlockReplica& r, const std::string& name) {
    return make_executor(name, block_graph(), {.mode = Mode::kInference, .parameters = &r.set});
  };
  const auto evaluation = make(replica, "cpu"), expected = make(reference, "reference");
  for (int step = 0; step < 3; ++step) {
    const at::Tensor output = evaluation->forward(images(3), {});
    EXPECT_FALSE(output.requires_grad());
    EXPECT_LT(distance(output, expected->forward(images(3), {})), 1e-5) << step;
    EXPECT_TRUE(at::equal(output, evaluation->forward(images(3), {}))) << "no dropout, no new statistics";
    const at::Tensor gradients = reference.gradients_of(images(4, step));
    replica.gradients_of(images(4, step));
    for (BlockReplica* changed : {&replica, &reference}) {
      const at::NoGradGuard no_grad;
      changed->set.values().add_(gradients, -0.05);
      changed->set.values_changed();
    }
  }
}

// Training mode without autograd: batch statistics and dropout as ever, on a plan of its own without a backward.
TEST(CpuExecutor, TrainsUnderNoGradGuardWithoutGradients) {
  BlockReplica replica("cpu"), other("cpu");
  const at::Tensor expected = other.executor->forward(images(4), {.seed = 3});
  EXPECT_TRUE(expected.requires_grad());
  const at::NoGradGuard no_grad;
  const at::Tensor output = replica.executor->forward(images(4), {.seed = 3});
  EXPECT_FALSE(output.requires_grad());
  EXPECT_LT(distance(output, expected), 1e-6);
  EXPECT_LT(distance(replica.set.buffer(0), other.set.buffer(0)), 1e-6);
}

// Nothing takes gradients: there is no backward in training mode either.
TEST(CpuExecutor, TrainsWithoutASinkWithoutGradients) {
  ParameterSet set;
  const auto executor = make_executor("cpu", block_graph(), {.mode = Mode::kTraining, .parameters = &set});
  set.allocate();
  set.initialize(3);
  BlockReplica other("cpu");
  const at::Tensor output = executor->forward(images(4), {.seed = 3});
  EXPECT_FALSE(output.requires_grad());
  EXPECT_LT(distance(output, other.executor->forward(images(4), {.seed = 3}).detach()), 1e-6);
  EXPECT_LT(distance(set.buffer(0), other.set.buffer(0)), 1e-6);
}

// Returns the memory of the gradients that each unit's backward gives, by the name of its first node.
std::map<std::string, std::vector<const void*>> gradient_memory(BlockReplica& replica) {
  struct Listener : ValueObserver {
    explicit Listener(const Graph& observed) : graph(observed) {}
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.phase != NodeRun::Phase::kBackward || run.nodes.empty()) return;
      std::vector<const void*>& of_unit = memory[graph.nodes[static_cast<size_t>(run.nodes.front())].name];
      for (const at::Tensor& value : values) of_unit.push_back(value.const_data_ptr());
    }
    const Graph& graph;
    std::map<std::string, std::vector<const void*>> memory;
  };
  Listener listener(replica.executor->graph());
  replica.executor->set_observer(&listener);
  replica.gradients_of(images(2));
  replica.executor->set_observer(nullptr);
  return listener.memory;
}

// The gradient that the next layer gives is read by one layer alone, which gives its own gradient in the same memory.
TEST(CpuExecutor, GivesGradientsInTheMemoryOfThoseThatItTook) {
  using Value = GraphBuilder::Value;
  const auto norm = [](GraphBuilder& b, const char* name, Value x) { return b.batch_norm(name, x); };
  const auto relu = [](GraphBuilder& b, Value x) { return b.activation("relu", x); };
  const auto sum = [](GraphBuilder& b, const char* name, Value x) {
    return b.add(name, {x, convolution_of(b, "side", b.input(), 16)});
  };
  const std::vector<std::pair<std::string, std::function<Value(GraphBuilder&, Value)>>> layers = {
      {"norm", [&](GraphBuilder& b, Value x) { return norm(b, "layer", x); }},
      {"norm, ReLU", [&](GraphBuilder& b, Value x) { return relu(b, norm(b, "layer", x)); }},
      {"norm, addition", [&](GraphBuilder& b, Value x) { return sum(b, "add", norm(b, "layer", x)); }},
      {"norm, addition, ReLU", [&](GraphBuilder& b, Value x) { return relu(b, sum(b, "add", norm(b, "layer", x))); }},
      {"frozen norm", [&](GraphBuilder& b, Value x) { return norm(b, "frozen", x); }},
      {"frozen norm, ReLU", [&](GraphBuilder& b, Value x) { return relu(b, norm(b, "frozen", x)); }},
      {"frozen norm, addition, ReLU",
       [&](GraphBuilder& b, Value x) { return relu(b, sum(b, "add", norm(b, "frozen", x))); }},
      {"sum", [&](GraphBuilder& b, Value x) { return sum(b, "layer", x); }},
      {"sum, ReLU", [&](GraphBuilder& b, Value x) { return relu(b, sum(b, "layer", x)); }}};
  for (const auto& [name, build] : layers) {
    GraphBuilder b({.image = {3, 12, 12}, .name = "memory"});
    const Value layer = build(b, convolution_of(b, "below", b.input(), 16));
    BlockReplica replica("cpu", at::kFloat, classifier(b, convolution_of(b, "above", layer, 16)));
    for (const Segment& segment : replica.set.segments()) {
      replica.set.set_trainable(segment.id, !segment.spec.name.starts_with("frozen"));
    }
    const auto memory = gradient_memory(replica);
    ASSERT_TRUE(memory.contains("above")) << name;
    ASSERT_EQ(memory.at("above").size(), 1U) << name;
    const auto own = memory.find(name.starts_with("frozen") ? "frozen" : "layer");
    ASSERT_NE(own, memory.end()) << name;
    EXPECT_EQ(std::count(own->second.begin(), own->second.end(), memory.at("above").front()),
              name.starts_with("sum") ? 2 : 1)
        << name;
  }
}

TEST(CpuExecutor, PlansWithoutABackwardNeedLessMemory) {
  BlockReplica replica("cpu");
  cpu::Plan::Layers layers;
  for (const Node& node : replica.executor->graph().nodes) {
    layers.push_back(std::make_unique<BoundLayer>(node, replica.executor->context()));
  }
  BuildContext context = replica.executor->context();
  context.kernels.convolutions = ConvolutionPolicy::kDirect;  // Winograd's own memory would decide on these few pixels
  const auto plan = [&](bool gradients) {
    return cpu::Plan(replica.executor->graph(), context, layers, {.batch = 4, .gradients = gradients}).arena_bytes();
  };
  EXPECT_LT(plan(false), plan(true));
}

TEST(CpuExecutor, GivesTheImagesTheirGradient) {
  BlockReplica replica("cpu"), reference("reference", at::kDouble);
  const at::Tensor x = images(3).clone().requires_grad_(true);
  const at::Tensor y = images(3).to(at::kDouble).requires_grad_(true);
  replica.gradients_of(x);
  reference.gradients_of(y);
  EXPECT_LT(distance(x.grad(), y.grad()), 1e-5);
}

TEST(CpuExecutor, TellsTheObserverOfEveryNode) {
  struct Listener : NodeObserver {
    void ran(const NodeRun& run) override {
      for (int node : run.nodes) (run.phase == NodeRun::Phase::kForward ? forward : backward).insert(node);
      EXPECT_FALSE(run.kernel.empty());
      if (run.kernel.find("ATen") != std::string_view::npos) through_aten.insert(run.nodes.begin(), run.nodes.end());
      EXPECT_GE(run.begin, last);
      EXPECT_GE(run.end, run.begin);
      last = run.end;
    }
    std::set<int> forward, backward, through_aten;
    NodeRun::Clock::time_point last;
  } listener;
  BlockReplica replica("cpu");
  replica.executor->set_observer(&listener);
  replica.gradients_of(images(2));
  std::set<int> all;
  for (const Node& node : replica.executor->graph().nodes) {
    if (node.id > 0) all.insert(node.id);
  }
  EXPECT_EQ(listener.forward, all);
  EXPECT_EQ(listener.backward, all);
  EXPECT_EQ(listener.through_aten, std::set<int>{replica.executor->graph().node("same").id});
  listener.forward.clear();
  replica.executor->set_observer(nullptr);
  replica.gradients_of(images(2));
  EXPECT_TRUE(listener.forward.empty());
}

// Returns the kernels of a forward whose names begin so, in order.
std::vector<std::string> kernels_of(Executor& executor, const at::Tensor& x, std::string_view start) {
  std::vector<std::string> kernels = testing::kernels_of(executor, x, {.seed = 3});
  std::erase_if(kernels, [&](const std::string& kernel) { return !kernel.starts_with(start); });
  return kernels;
}

TEST(CpuExecutor, NamesNormsByWhatRunsWithThem) {
  using Names = std::vector<std::string>;
  BlockReplica replica("cpu");
  const Names units = {"batch norm + activation", "batch norm + activation", "batch norm",
                       "batch norm + add + activation"};
  EXPECT_EQ(kernels_of(*replica.executor, images(2), "batch norm"), units);
  const auto inference = make_executor("cpu", block_graph(), {.mode = Mode::kInference, .parameters = &replica.set});
  EXPECT_EQ(kernels_of(*inference, images(2), "batch norm"), units);
  for (const Segment& segment : replica.set.segments()) {
    if (segment.spec.name.starts_with("bn")) replica.set.set_trainable(segment.id, false);
  }
  EXPECT_EQ(kernels_of(*replica.executor, images(2), "batch norm"),
            (Names{"batch norm, frozen + activation", "batch norm, frozen + activation", "batch norm, frozen",
                   "batch norm, frozen + add + activation"}));
}

// What runs of the block but convolutions and norms, with each conversion that it needs once.
TEST(CpuExecutor, NamesAllThatItRuns) {
  BlockReplica replica("cpu");
  const auto inference = make_executor("cpu", block_graph(), {.mode = Mode::kInference, .parameters = &replica.set});
  const auto names = [](Executor& executor) {
    std::string text;
    for (const std::string& kernel : kernels_of(executor, images(2), "")) {
      if (kernel == "max pool") text.clear();  // before it only whether the image is converted
      if (!kernel.starts_with("conv ") && !kernel.starts_with("batch norm")) text += kernel + ", ";
    }
    return text;
  };
  const std::string to_concat =
      "max pool, channel shuffle, to plain layout, adaptive_average_pool (ATen), to blocked layout, "
      "activation, concat, ";
  EXPECT_EQ(names(*replica.executor), to_concat + "dropout, global average pool, linear, ");
  EXPECT_EQ(names(*inference), to_concat + "global average pool, linear, ");
}

// The places of maxima are bytes: those of larger windows run through ATen.
TEST(CpuExecutor, PoolsWindowsOfAnySize) {
  const at::Tensor x = (at::linspace(-2, 2, 2 * 3 * 18 * 19) * 37).sin().view({2, 3, 18, 19});
  for (const Size2d window : {Size2d(15, 17), Size2d(16, 16)}) {
    GraphBuilder b({.image = {3, 18, 19}, .name = "windows"});
    const auto pool = b.max_pool("pool", b.input(), {.kernel = window, .stride = 1});
    const Graph graph = b.build(b.linear("fc", b.flatten("flat", pool), {.out_features = 5}));
    BlockReplica cpu("cpu", at::kFloat, graph), reference("reference", at::kDouble, graph);
    const at::Tensor given = x.clone().requires_grad_(true), exact = x.to(at::kDouble).requires_grad_(true);
    EXPECT_LT(distance(cpu.gradients_of(given), reference.gradients_of(exact)), 1e-5) << window.height;
    EXPECT_LT(distance(given.grad(), exact.grad()), 1e-5) << window.height;
    EXPECT_EQ(kernels_of(*cpu.executor, x, "max"),
              std::vector<std::string>{window.height == 15 ? "max pool" : "max_pool (ATen)"});
  }
}

// Three plans are kept. Of those the one goes that was not used for the longest time.
TEST(CpuExecutor, KeepsThePlansThatWereUsedLast) {
  GraphBuilder b({.image = {3, 12, 12}, .name = "plans"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 5}));
  ParameterSet set;
  const auto executor = make_executor("cpu", graph, {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(3);
  const auto compiles = [&](int64_t batch) {
    ::testing::internal::CaptureStderr();
    const core::log::Level before = core::log::set_level(core::log::Level::kDebug);
    executor->forward(images(batch), {});
    core::log::set_level(before);
    const std::string said = ::testing::internal::GetCapturedStderr();
    return said.find("steps for a batch of " + std::to_string(batch) + ",") != std::string::npos;
  };
  for (const int64_t batch : {1, 2, 3}) EXPECT_TRUE(compiles(batch)) << batch;
  EXPECT_FALSE(compiles(1));
  EXPECT_TRUE(compiles(4)) << "in place of 2";
  EXPECT_FALSE(compiles(1));
  EXPECT_FALSE(compiles(3));
  EXPECT_TRUE(compiles(2));
}

// A checkpoint or the first rank may replace them.
TEST(CpuExecutor, PlansAgainWhereChoicesOfKernelsAreReplaced) {
  GraphBuilder b({.image = {3, 12, 12}, .name = "choices"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 5}));
  const auto choices = std::make_shared<KernelChoices>();
  ParameterSet set;
  const auto executor =
      make_executor("cpu", graph, {.mode = Mode::kInference, .kernels = {.choices = choices}, .parameters = &set});
  set.allocate();
  set.initialize(3);
  const auto plans = [&] {
    ::testing::internal::CaptureStderr();
    const core::log::Level before = core::log::set_level(core::log::Level::kDebug);
    executor->forward(images(2), {});
    core::log::set_level(before);
    return ::testing::internal::GetCapturedStderr().find("steps for a batch of 2,") != std::string::npos;
  };
  EXPECT_TRUE(plans());
  choices->add("a convolution", "winograd");
  EXPECT_FALSE(plans()) << "a choice that is added changes no other";
  const uint64_t version = choices->version();
  choices->agree([](const std::string&) { return std::string(); });
  ASSERT_GT(choices->version(), version);
  EXPECT_TRUE(plans());
  EXPECT_FALSE(plans());
}

TEST(CpuExecutor, LogsThePlansThatItMakes) {
  GraphBuilder b({.image = {512, 4, 4}, .name = "logged"});
  const auto conv = b.convolution("conv", b.input(), {.out_channels = 1024, .kernel = 1});
  ParameterSet set;
  const auto executor = make_executor(
      "cpu", b.build(b.global_average_pool("pool", conv)),
      {.mode = Mode::kInference, .kernels = {.convolutions = ConvolutionPolicy::kDirect}, .parameters = &set});
  set.allocate();
  set.initialize(3);
  ::testing::internal::CaptureStderr();
  const core::log::Level before = core::log::set_level(core::log::Level::kDebug);
  const ExecutorMemory memory = *executor->prepare(32);
  core::log::set_level(before);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_GT(memory.activations, 2 << 20);
  EXPECT_GT(memory.packed_weights, 1 << 20);
  const std::string expected = fmt::format(
      "logged: 3 steps for a batch of 32, {:.0f} MiB for activations, {:.0f} MiB for packed weights",
      static_cast<double>(memory.activations) / 1048576, static_cast<double>(memory.packed_weights) / 1048576);
  EXPECT_NE(said.find(expected), std::string::npos) << said << "instead of " << expected;
}

// So that other processes can tell a long step from one that makes no progress.
TEST(CpuExecutor, CountsWhatItRunsAsWork) {
  struct Listener : NodeObserver {
    void ran(const NodeRun& run) override { ++(run.phase == NodeRun::Phase::kForward ? forward : backward); }
    uint64_t forward = 0, backward = 0;
  } listener;
  GraphBuilder b({.image = {3, 12, 12}, .name = "work"});
  const auto hidden = b.linear("hidden", b.flatten("flat", b.input()), {.out_features = 33});
  BlockReplica replica("cpu", at::kFloat, b.build(b.linear("fc", hidden, {.out_features = 5})));
  replica.executor->set_observer(&listener);
  replica.sink.begin(0, 1);
  const uint64_t start = core::work_count();
  const at::Tensor loss = replica.loss(images(2));
  const uint64_t middle = core::work_count();
  loss.backward();
  const uint64_t end = core::work_count();
  replica.sink.finish();
  replica.executor->set_observer(nullptr);
  EXPECT_GE(listener.forward, 2U);
  EXPECT_GE(listener.backward, 2U);
  EXPECT_EQ(middle - start, listener.forward);
  EXPECT_EQ(end - middle, listener.backward);
}

// Weights of 16 bits, of 432 inputs and 5 outputs, where nothing but reading them takes time.
TEST(CpuExecutor, KeepsRoundedWeightsOfLinearLayersForFewSamples) {
  if (cpu::isa() == cpu::Isa::kAvx2) GTEST_SKIP() << core::skip::kNeedsAvx512;
  GraphBuilder b({.image = {3, 12, 12}, .name = "linear"});
  const Graph graph = b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 5}));
  const auto packed_bytes = [&](at::ScalarType dtype, bool frozen, int64_t batch) {
    ParameterSet set;
    const auto executor =
        make_executor("cpu", graph, {.dtype = dtype, .mode = Mode::kInference, .frozen = frozen, .parameters = &set});
    set.allocate();
    set.initialize(3);
    return executor->prepare(batch)->packed_weights;
  };
  for (const int64_t batch : {1, 4}) EXPECT_EQ(packed_bytes(at::kBFloat16, true, batch), 432 * 5 * 2) << batch;
  EXPECT_EQ(packed_bytes(at::kBFloat16, true, 5), 0);
  EXPECT_EQ(packed_bytes(at::kBFloat16, false, 1), 0) << "variables may change with each step";
  EXPECT_EQ(packed_bytes(at::kFloat, true, 1), 0);
}

// Maps are shown as they are, in their dtype and layout, vectors as floats.
TEST(CpuExecutor, ShowsObserversWhatStepsCompute) {
  struct Listener : ValueObserver {
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.phase == NodeRun::Phase::kBackward) {
        gradients += values.size();
      } else if (run.kernel == "linear") {
        vectors = values.front().clone();
      } else if (run.kernel == "batch norm + activation" && !maps.defined()) {
        maps = values.front().clone();
      }
    }
    at::Tensor maps, vectors;
    size_t gradients = 0;
  };
  const int64_t padded = (20 + cpu::channel_block() - 1) / cpu::channel_block() * cpu::channel_block();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Listener listener;
    BlockReplica replica("cpu", dtype);
    replica.executor->set_observer(&listener);
    replica.sink.begin(0, 1);
    const at::Tensor logits = replica.executor->forward(images(2), {.seed = 3});
    softmax_cross_entropy(logits, labels(2)).backward();
    replica.sink.finish();
    replica.executor->set_observer(nullptr);
    ASSERT_TRUE(listener.maps.defined() && listener.vectors.defined());
    EXPECT_EQ(listener.maps.scalar_type(), cpu::isa() == cpu::Isa::kAvx2 ? at::kFloat : dtype);
    EXPECT_EQ(listener.maps.numel(), 2 * padded * 12 * 12);
    EXPECT_TRUE(at::equal(listener.vectors, logits.detach().flatten()));
    EXPECT_GT(listener.gradients, 8U);
  }
}

TEST(CpuExecutor, RefusesOtherDtypes) {
  ParameterSet set;
  for (const at::ScalarType dtype : {at::kDouble, at::kHalf}) {
    EXPECT_EQ(core::message_of([&] { make_executor("cpu", block_graph(), {.dtype = dtype, .parameters = &set}); },
                               core::ErrorCode::kUnsupported),
              std::string("the executor for CPUs does not compute so: block: expected float or bfloat16 on the CPU, "
                          "got ") +
                  toString(dtype) + "; use the reference executor");
  }
}

// The output is as near as the rounding in each layer allows (the conformance suite's bound). Gradients are less near:
// pixels that are equal after rounding go another way through max pooling, in the reference executor, too.
TEST(CpuExecutor, RunsInBfloat16) {
  BlockReplica replica("cpu", at::kBFloat16), sixteen("reference", at::kBFloat16), exact("reference", at::kDouble);
  const at::Tensor x = images(4).to(at::kBFloat16).to(at::kFloat);
  const auto output_of = [&](BlockReplica& r) {
    return r.executor->forward(x.to(r.executor->context().dtype), {.seed = 3});
  };
  const double layers = static_cast<double>(replica.executor->graph().nodes.size());
  EXPECT_LT(distance(output_of(replica), output_of(exact)), std::ldexp(1.0, -7) * std::sqrt(layers));
  const at::Tensor expected = exact.gradients_of(x);
  const double error = distance(replica.gradients_of(x), expected);
  EXPECT_LT(error, 1.5 * distance(sixteen.gradients_of(x), expected));
  EXPECT_LT(error, 0.2);
}

}  // namespace
}  // namespace trainyard::nn::cpu_executor_test
