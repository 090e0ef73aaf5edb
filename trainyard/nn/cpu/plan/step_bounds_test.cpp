// What each step knows of its output without looking at it: no less than the largest magnitude, and not much more.
// Images and parameters are chosen so that some element comes near the bound.
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/value_observer.h"

namespace trainyard::nn::cpu::step_bounds_test {
namespace {

using Value = GraphBuilder::Value;
using Function = Activation::Function;

// A step that has run.
struct Bounded {
  std::string kernel;
  float largest = 0, bound = 0;
};

// Tells each step the true bounds of what it reads, before it says what bounds its output.
class BoundObserver : public ValueObserver {
 public:
  BoundObserver(const Plan& plan, cpu::Run& run, float input) : plan_(plan), run_(run), input_(input) {}

  void made(const NodeRun& run, std::span<const at::Tensor> values) override {
    note_bound();
    run_.bounds.front() = input_;
    steps_.push_back({.kernel = std::string(run.kernel), .largest = values.front().abs().max().item<float>()});
  }
  // Call it once, after the forward.
  std::vector<Bounded> finish() {
    note_bound();
    return steps_;
  }

 private:
  // The bound of the last step is known when the next one has run.
  void note_bound() {
    if (steps_.empty()) return;
    float& bound = run_.bounds.at(static_cast<size_t>(plan_.steps().at(steps_.size() - 1)->output()));
    steps_.back().bound = std::exchange(bound, steps_.back().largest);
  }

  const Plan& plan_;
  cpu::Run& run_;
  float input_;
  std::vector<Bounded> steps_;
};

at::Tensor even_images(int64_t channels = 16, double value = 3) {
  return at::full({2, channels, 4, 6}, value, at::kFloat);
}
// One element alone is not zero: no other lies so far from a mean.
at::Tensor spike() {
  at::Tensor images = at::zeros({2, 16, 4, 6}, at::kFloat);
  images[1][5][2][3].fill_(100);
  return images;
}

struct Case {
  std::function<Value(GraphBuilder&, Value)> build;
  at::Tensor images = even_images();
  Mode mode = Mode::kInference;
  bool frozen = false, gradients = false;
  double table = 0.5;  // of attention's bias
  double weight = 0.5, bias = 2;
};

void fill(ParameterSet& set, const Case& c) {
  for (const Segment& segment : set.segments()) {
    const std::string& name = segment.spec.name;
    set.value(segment.id).fill_(name.ends_with("bias_table") ? c.table : name.ends_with("bias") ? c.bias : c.weight);
  }
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
    const std::string& name = set.buffer_spec(i).name;
    if (name.ends_with("running_mean")) set.buffer(i).fill_(-1);
    if (name.ends_with("running_var")) set.buffer(i).fill_(0.25);
  }
  set.values_changed();
}

std::vector<Bounded> bounds_of(const Case& c) {
  GraphBuilder b({.image = {c.images.size(1), 4, 6}, .name = "bounds"});
  const Value y = c.build(b, b.input());
  const Graph graph = b.build(b.shape(y).size() == 1 ? y : b.flatten("logits", y));
  ParameterSet set;
  GradientSink sink(set);
  const auto executor = make_executor("cpu", graph,
                                      {.mode = c.mode,
                                       .frozen = c.frozen,
                                       .kernels = {.convolutions = ConvolutionPolicy::kDirect},
                                       .parameters = &set,
                                       .gradients = &sink});
  set.allocate();
  set.initialize(3);
  fill(set, c);
  Plan::Layers layers;
  for (const Node& node : executor->graph().nodes) {
    layers.push_back(std::make_unique<BoundLayer>(node, executor->context()));
  }
  const Plan plan(executor->graph(), executor->context(), layers, {.batch = 2, .gradients = c.gradients});
  cpu::Run run;
  BoundObserver observer(plan, run, c.images.abs().max().item<float>());
  const std::vector<at::Tensor> inputs = {c.images};
  plan.forward(run, inputs, {.seed = 3}, &observer);
  return observer.finish();
}

// Expects a step of this kernel, whose bound is at most `most` times its largest magnitude.
void expect_bound(const std::string& kernel, const Case& c, double most = 1.035) {
  bool found = false;
  for (const Bounded& step : bounds_of(c)) {
    if (!step.kernel.starts_with(kernel)) continue;
    found = true;
    EXPECT_GT(step.largest, 0) << step.kernel;
    EXPECT_GE(step.bound, step.largest) << step.kernel;
    EXPECT_LE(step.bound, most * step.largest) << step.kernel;
  }
  EXPECT_TRUE(found) << "no step runs " << kernel;
}

Value pointwise(GraphBuilder& b, const std::string& name, Value x, int64_t channels, bool bias) {
  return b.convolution(name, x, {.out_channels = channels, .bias = bias});
}
Value depthwise(GraphBuilder& b, const std::string& name, Value x, int64_t channels) {
  return b.convolution(name, x,
                       {.out_channels = channels, .kernel = 3, .padding = Padding::all(1), .groups = channels});
}

TEST(StepBounds, OfConversions) {
  const Case c{.build = [](auto& b, Value x) { return b.activation("relu", x); }};
  expect_bound("to blocked layout", c);
  expect_bound("to plain layout", c);
}

TEST(StepBounds, OfWhatPicksOrMovesValuesAreThoseOfTheInput) {
  const Pool pool{.kernel = 3, .stride = 1, .padding = Padding::all(1)};
  expect_bound("activation", {.build = [](auto& b, Value x) { return b.activation("relu", x); }}, 1);
  expect_bound("max pool", {.build = [=](auto& b, Value x) { return b.max_pool("pool", x, pool); }}, 1);
  expect_bound("channel shuffle", {.build = [](auto& b, Value x) { return b.channel_shuffle("shuffle", x, 4); }}, 1);
  expect_bound("channel pad",
               {.build = [](auto& b, Value x) { return b.channel_pad("pad", x, {.before = 3, .after = 2}); }}, 1);
  expect_bound("channel slice",
               {.build = [](auto& b, Value x) { return b.channel_slice("slice", x, {.begin = 3, .count = 9}); }}, 1);
  expect_bound("average pool", {.build = [=](auto& b, Value x) { return b.average_pool("pool", x, pool); }}, 1.00001);
  expect_bound("global average pool", {.build = [](auto& b, Value x) { return b.global_average_pool("pool", x); }},
               1.00001);
}

// A sigmoid's values are above the magnitude of small numbers.
TEST(StepBounds, OfActivationsThatAreLargerThanTheirInputs) {
  for (const Function function : {Function::kSigmoid, Function::kHardSigmoid}) {
    const Case c{.build = [=](auto& b, Value x) { return b.activation("a", x, function); },
                 .images = even_images(16, 0.125)};
    expect_bound("activation", c, 2);
  }
}

TEST(StepBounds, OfAConcatenationAreThoseOfTheLargestPart) {
  const Case c{.build = [](auto& b, Value x) { return b.concat("concat", {x, b.add("sum", {x, x}), x}); }};
  expect_bound("concat", c, 1);
}

TEST(StepBounds, OfConvolutions) {
  const auto layer = [](auto& b, Value x) { return b.activation("relu", pointwise(b, "conv", x, 16, true)); };
  expect_bound("conv 1x1", {.build = layer});
  // In training as well, where its ReLU would hide NaN.
  expect_bound("conv 1x1", {.build = layer, .mode = Mode::kTraining, .gradients = true});
  // The image goes to a convolution alone, what is added is in memory of its own.
  const auto unit = [](auto& b, Value x) {
    const Value other = b.channel_shuffle("shuffle", x, 4);
    const Value y = b.batch_norm("norm", pointwise(b, "conv", x, 16, true));
    return b.activation("relu", b.add("add", {y, other}));
  };
  expect_bound("conv 1x1", {.build = unit, .frozen = true});
}

TEST(StepBounds, OfAnInvertedResidual) {
  const auto block = [](auto& b, Value x) {
    Value y = b.activation("relu1", b.batch_norm("norm1", pointwise(b, "expand", x, 32, false)));
    y = b.activation("relu2", b.batch_norm("norm2", depthwise(b, "depthwise", y, 32)));
    return b.add("add", {b.batch_norm("norm3", pointwise(b, "project", y, 16, false)), x});
  };
  const Case c{.build = block, .frozen = true};
  for (const Bounded& step : bounds_of(c)) {  // at once, or convolution by convolution
    EXPECT_GE(step.bound, step.largest) << step.kernel;
    EXPECT_LE(step.bound, 1.035 * step.largest) << step.kernel;
  }
}

TEST(StepBounds, OfNormsByRunningStatistics) {
  const auto unit = [](auto& b, Value x) { return b.activation("relu", b.add("add", {b.batch_norm("norm", x), x})); };
  expect_bound("batch norm + add + activation", {.build = unit});
}

TEST(StepBounds, OfNormsByTheBatchsStatistics) {
  const auto norm = [](auto& b, Value x) { return b.batch_norm("norm", x); };
  expect_bound("batch norm", {.build = norm, .images = spike(), .mode = Mode::kTraining});
  const auto sum = [](auto& b, Value x) { return b.add("add", {b.batch_norm("norm", x), x}); };
  expect_bound("batch norm + add", {.build = sum, .images = spike(), .mode = Mode::kTraining});
}

// The window of the largest sum is full of the largest element in no image with a mean of its own.
TEST(StepBounds, OfANormWithADepthwiseConvolution) {
  const auto unit = [](auto& b, Value x) { return depthwise(b, "depthwise", b.batch_norm("norm", x), 16); };
  expect_bound("batch norm + depthwise", {.build = unit, .images = spike(), .mode = Mode::kTraining, .gradients = true},
               3);
}

TEST(StepBounds, OfLayerNorm) {
  const auto norm = [](auto& b, Value x) { return b.layer_norm("norm", x, {}); };
  expect_bound("layer norm", {.build = norm, .images = spike()});
}

TEST(StepBounds, OfScales) {
  const auto excited = [](auto& b, Value x) {
    return b.multiply("multiply", x, b.linear("gate", b.global_average_pool("pool", x), {.out_features = 16}));
  };
  expect_bound("scale channels", {.build = excited});
  const auto branch = [](auto& b, Value x) { return b.add("add", {b.layer_scale("scale", x, {}), x}); };
  expect_bound("layer scale + add", {.build = branch});
  const auto dropped = [](auto& b, Value x) { return b.dropout("drop", x, 0.25); };
  expect_bound("dropout", {.build = dropped, .mode = Mode::kTraining});
}

// No bound begins at a number of its own.
TEST(StepBounds, OfValuesBelowOne) {
  const auto small = [](std::function<Value(GraphBuilder&, Value)> build) {
    return Case{.build = std::move(build), .images = even_images(16, 0.125), .weight = 0.05, .bias = 0};
  };
  const auto of_spike = [](std::function<Value(GraphBuilder&, Value)> build) {
    return Case{.build = std::move(build), .images = spike(), .mode = Mode::kTraining, .weight = 0.05, .bias = 0};
  };
  expect_bound("concat", small([](auto& b, Value x) { return b.concat("concat", {x, x}); }), 1);
  expect_bound("sum", small([](auto& b, Value x) { return b.add("sum", {x, x}); }));
  expect_bound("conv 1x1", small([](auto& b, Value x) { return pointwise(b, "conv", x, 16, true); }));
  expect_bound("batch norm", small([](auto& b, Value x) { return b.batch_norm("norm", x); }));
  expect_bound("layer scale + add", small([](auto& b, Value x) {
                 return b.add("add", {b.layer_scale("scale", x, {}), x});
               }));
  expect_bound("batch norm", of_spike([](auto& b, Value x) { return b.batch_norm("norm", x); }), 1.1);
  expect_bound("layer norm", of_spike([](auto& b, Value x) { return b.layer_norm("norm", x, {}); }), 1.05);
}

Case attention(double value, double table) {
  return {.build = [](auto& b, Value x) { return b.attention("attention", x, {.heads = 1, .window = 2}); },
          .images = even_images(48, value),
          .table = table};
}

TEST(StepBounds, OfAttention) {
  expect_bound("attention", attention(3, 0.5));
  expect_bound("attention", attention(0x1p40, 0.5));
  expect_bound("attention", attention(3, 0x1p40));
}

// Scores of such numbers may be infinite.
TEST(StepBounds, OfAttentionAreUnknownForLargeNumbers) {
  for (const Case& c : {attention(0x1p41, 0.5), attention(3, 0x1p41)}) {
    bool found = false;
    for (const Bounded& step : bounds_of(c)) {
      if (step.kernel != "attention") continue;
      found = true;
      EXPECT_TRUE(std::isinf(step.bound));
    }
    EXPECT_TRUE(found);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::step_bounds_test
