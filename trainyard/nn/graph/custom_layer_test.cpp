// A layer that a program brings along: its gradients, its numbers in the set, and what is said when it is wrong.

#include "trainyard/nn/graph/custom_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::custom_layer_test {
namespace {

using ::testing::HasSubstr;

// y = tanh(x W + b) * scale, with a running mean of x, and a counter of another dtype.
class Cell : public CustomLayer {
 public:
  Cell(int64_t in, int64_t out)
      : out_(out),
        weight_(parameter({"weight", {in, out}, Initializer::normal(0.5)})),
        bias_(parameter({.name = "bias", .shape = {out}, .init = Initializer::uniform(0.5), .decay = false})),
        scale_(buffer({"scale", {1}, Initializer::constant(2)})),
        mean_(buffer({"mean", {in}})),
        calls_(buffer("calls", at::full({}, 3, at::kLong))) {}

  Shape output_shape(const std::vector<Shape>& inputs) const override {
    if (inputs[0].size() == 1) return {out_};
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a cell takes vectors",
                                                          .actual = to_string(inputs[0]),
                                                          .remedy = "put GraphBuilder::flatten() in front of it"});
  }
  at::Tensor forward(std::span<const at::Tensor> inputs) override {
    const at::Tensor& x = inputs[0];
    if (training()) {
      const at::NoGradGuard no_grad;
      mean_.mul_(0.5).add_(x.mean(0), 0.5);
      calls_.add_(1);
    }
    return x.matmul(weight_).add(bias_).tanh().mul(scale_);
  }

 private:
  int64_t out_;
  at::Tensor weight_, bias_, scale_, mean_, calls_;
};

Graph cell_graph() {
  GraphBuilder b({.image = {4}, .name = "own"});
  const auto x = b.foreign("first", b.input(), custom_layer<Cell>("Cell", 4, 5));
  return b.build(b.linear("fc", b.foreign("second", x, custom_layer<Cell>("Cell", 5, 3)), {.out_features = 2}));
}

at::Tensor numbers(at::IntArrayRef shape) {
  return at::arange(1, 1 + at::empty(shape).numel(), at::kDouble).mul(1.7).sin().view(shape);
}

// An executor of the graph with all that it needs.
struct OwnRig {
  explicit OwnRig(const std::string& executor_name, const Graph& graph = cell_graph(),
                  at::ScalarType dtype = at::kFloat, Mode mode = Mode::kTraining)
      : set({.dtype = dtype}), sink(set) {
    executor = make_executor(
        executor_name, graph,
        {.dtype = dtype, .mode = mode, .parameters = &set, .gradients = mode == Mode::kTraining ? &sink : nullptr});
    set.allocate();
    set.initialize(1);
  }
  // Returns the cost: the sum of the outputs, each times a number of its own.
  at::Tensor cost(const at::Tensor& x) {
    const at::Tensor y = executor->forward(x, {});
    return y.mul(numbers(y.sizes()).to(y.scalar_type())).sum();
  }
  // Writes the gradients of the cost: of the parameters into the set, of the input into what is returned.
  at::Tensor backward(const at::Tensor& images) {
    const at::Tensor x = images.detach().clone().requires_grad_(true);
    sink.begin(0, 1);
    cost(x).backward();
    sink.finish();
    return x.grad();
  }
  at::Tensor value(const char* name) { return set.value(*set.find(name)); }
  at::Tensor buffer(const char* name) { return set.buffer(*set.find_buffer(name)); }

  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
};

// Changes each number of `place` by a little and returns the slopes of the cost.
at::Tensor differences(OwnRig& rig, const at::Tensor& place, const at::Tensor& x) {
  constexpr double kStep = 1e-6;
  at::Tensor slopes = at::zeros(place.sizes(), at::kDouble);
  const auto cost_at = [&](double* number, double value) {
    *number = value;
    return rig.cost(x).item<double>();
  };
  for (int64_t i = 0; i < place.numel(); ++i) {
    auto* const number = place.mutable_data_ptr<double>() + i;
    const double before = *number;
    slopes.mutable_data_ptr<double>()[i] =
        (cost_at(number, before + kStep) - cost_at(number, before - kStep)) / (2 * kStep);
    *number = before;
  }
  return slopes;
}

TEST(CustomLayer, GradientsAreTheSlopesOfTheCost) {
  OwnRig rig("reference", cell_graph(), at::kDouble);
  const at::Tensor x = numbers({6, 4});
  const at::Tensor of_x = rig.backward(x);
  for (const char* name : {"first.weight", "first.bias", "second.weight", "second.bias", "fc.weight"}) {
    SCOPED_TRACE(name);
    const at::Tensor gradient = rig.set.gradient(*rig.set.find(name)).clone();
    EXPECT_GT(gradient.abs().max().item<double>(), 1e-2);
    EXPECT_LT(gradient.sub(differences(rig, rig.value(name), x)).abs().max().item<double>(), 1e-7);
  }
  EXPECT_LT(of_x.sub(differences(rig, x, x)).abs().max().item<double>(), 1e-7);
}

TEST(CustomLayer, TheCpuPlanComputesAsTheReferenceInDouble) {
  OwnRig exact("reference", cell_graph(), at::kDouble), plan("cpu");
  exact.set.values().copy_(plan.set.values());
  const at::Tensor x = numbers({6, 4}), single = x.to(at::kFloat);
  const auto near = [](const at::Tensor& actual, const at::Tensor& expected) {
    return at::allclose(actual.to(at::kDouble), expected, 1e-5, 1e-6);
  };
  EXPECT_TRUE(near(plan.executor->forward(single, {}), exact.executor->forward(x, {})));
  EXPECT_TRUE(near(plan.backward(single), exact.backward(x)));
  EXPECT_TRUE(near(plan.set.gradients(), exact.set.gradients()));
  EXPECT_TRUE(near(plan.buffer("second.mean"), exact.buffer("second.mean")));
}

TEST(CustomLayer, DeclaresWhatTheSetHolds) {
  OwnRig rig("cpu");
  EXPECT_EQ(rig.set.size(), 6U);
  EXPECT_TRUE(rig.set.segment(*rig.set.find("first.weight")).spec.decay);
  EXPECT_FALSE(rig.set.segment(*rig.set.find("first.bias")).spec.decay);
  EXPECT_EQ(rig.buffer("first.scale").item<float>(), 2);
  at::Tensor expected = at::empty({4, 5});
  initialize_tensor(expected, Initializer::normal(0.5), 1, "first.weight");
  EXPECT_TRUE(rig.value("first.weight").equal(expected)) << "the number of replicas must not change it";
  rig.backward(at::ones({6, 4}));
  EXPECT_EQ(rig.buffer("first.mean")[0].item<float>(), 0.5);
  EXPECT_EQ(rig.buffer("first.calls").scalar_type(), at::kLong);
  EXPECT_EQ(rig.buffer("first.calls").item<int64_t>(), 4) << "three at first, and one forward";
}

TEST(CustomLayer, EvaluationSharesValuesAndChangesNothing) {
  for (const char* name : {"cpu", "reference"}) {
    OwnRig rig(name);
    const at::Tensor x = numbers({6, 4}).to(at::kFloat);
    const at::Tensor trained = rig.executor->forward(x, {}).detach();
    const auto evaluation =
        make_executor(name, rig.executor->graph(), {.mode = Mode::kInference, .parameters = &rig.set});
    EXPECT_TRUE(evaluation->forward(x, {}).allclose(trained, 1e-6, 1e-6));
    EXPECT_EQ(rig.buffer("first.calls").item<int64_t>(), 4) << "only training counts";
    rig.value("first.weight").zero_();
    rig.set.values_changed();
    EXPECT_FALSE(evaluation->forward(x, {}).allclose(trained, 1e-3, 1e-3));
  }
}

TEST(CustomLayer, FreezesEachParameter) {
  for (const char* name : {"cpu", "reference"}) {
    OwnRig rig(name);
    const at::Tensor x = numbers({6, 4}).to(at::kFloat);
    rig.backward(x);
    const at::Tensor free = rig.set.gradient(*rig.set.find("first.bias")).clone();
    rig.set.set_trainable(*rig.set.find("first.weight"), false);
    rig.backward(x);
    EXPECT_EQ(rig.set.gradient(*rig.set.find("first.weight")).count_nonzero().item<int64_t>(), 0);
    EXPECT_TRUE(rig.set.gradient(*rig.set.find("first.bias")).equal(free));
  }
}

TEST(CustomLayer, IsSavedUnderItsNodesName) {
  OwnRig rig("cpu"), other("cpu", cell_graph(), at::kFloat, Mode::kInference);
  const at::Tensor x = numbers({6, 4}).to(at::kFloat);
  rig.backward(x);
  rig.set.values().add_(rig.set.gradients(), -0.1);
  core::MemoryState state;
  rig.set.save(state);
  other.set.load(state);
  EXPECT_TRUE(other.value("second.weight").equal(rig.value("second.weight")));
  EXPECT_EQ(other.buffer("first.calls").item<int64_t>(), 4);
  const auto here = make_executor("cpu", cell_graph(), {.mode = Mode::kInference, .parameters = &rig.set});
  EXPECT_TRUE(other.executor->forward(x, {}).equal(here->forward(x, {})));

  GraphBuilder b({.image = {4}, .name = "wider"});
  OwnRig wider("cpu", b.build(b.foreign("first", b.input(), custom_layer<Cell>("Cell", 4, 7))));
  EXPECT_THAT(core::message_of([&] { wider.set.load(state); }, core::ErrorCode::kCorruptData),
              HasSubstr("another shape or type: first.weight"));
  GraphBuilder c({.image = {4}, .name = "other"});
  OwnRig renamed("cpu", c.build(c.foreign("frist", c.input(), custom_layer<Cell>("Cell", 4, 5))));
  const std::string missing = core::message_of([&] { renamed.set.load(state); }, core::ErrorCode::kCorruptData);
  EXPECT_THAT(missing, HasSubstr("frist."));
  EXPECT_THAT(missing, HasSubstr("first.")) << "the nearest name";
}

// A layer that is wrong in one way.
class Wrong : public CustomLayer {
 public:
  explicit Wrong(std::string how) : how_(std::move(how)) {
    weight_ = parameter({"weight", {4, 3}});
    if (how_ == "twice") buffer({"weight", {4}});
    if (how_ == "nameless") parameter({"", {4}});
    if (how_ == "negative") parameter({"bias", {-1}});
    if (how_ == "no start") buffer("table", at::Tensor());
  }
  Shape output_shape(const std::vector<Shape>& inputs) const override {
    if (how_ == "shape of nothing") return {0};
    return {inputs.at(0).at(how_ == "dimensions" ? 2 : 0) - 1};
  }
  at::Tensor forward(std::span<const at::Tensor> inputs) override {
    if (how_ == "undeclared") return inputs[0].matmul(undeclared_);
    if (how_ == "transposed") return inputs[0].matmul(weight_.t());
    if (how_ == "no result") return {};
    if (how_ == "in place") inputs[0].relu_();
    return inputs[0].matmul(weight_).sum(0);
  }

 private:
  std::string how_;
  at::Tensor weight_, undeclared_;
};

// Needs no input.
class Table : public CustomLayer {
 public:
  std::optional<size_t> input_count() const override { return 0; }
  Shape output_shape(const std::vector<Shape>& /*inputs*/) const override { return {4}; }
  at::Tensor forward(std::span<const at::Tensor> /*inputs*/) override { return weight_; }

 private:
  at::Tensor weight_ = parameter({"weight", {4}});
};

Graph wrong_graph(const std::string& how, size_t inputs = 1) {
  GraphBuilder b({.image = {4}, .name = "wrong"});
  const std::vector<GraphBuilder::Value> each(inputs, b.input());
  return b.build(b.foreign("own", each, custom_layer<Wrong>("Wrong", how)));
}

TEST(CustomLayer, AWrongOneIsRefusedWhereItJoinsAGraph) {
  const auto refused = [](const std::string& how) { return core::message_of([&] { wrong_graph(how); }); };
  EXPECT_EQ(refused("twice"),
            "a custom layer declares two tensors of one name: foreign 'own': weight; give each parameter and buffer a "
            "name of its own");
  EXPECT_THAT(refused("nameless"), HasSubstr("without a name: foreign 'own'; name it"));
  EXPECT_THAT(refused("negative"), HasSubstr("of shape [-1]: foreign 'own': bias; give parameter() the shape"));
  EXPECT_THAT(refused("no start"), HasSubstr("no values to start with: foreign 'own': table"));
  EXPECT_EQ(refused("shape of nothing"), "its layer's output_shape() is [0]: foreign 'own'");
  EXPECT_THAT(refused("dimensions"), HasSubstr("output_shape() threw"));
  EXPECT_THAT(refused("dimensions"), HasSubstr("foreign 'own': got inputs [4]"));
  EXPECT_EQ(core::message_of([&] { wrong_graph("", 2); }),
            "its layer takes 1 inputs, the node has 2; override input_count() where that is wrong: foreign 'own'");
  GraphBuilder b({.image = {3, 2, 2}, .name = "image"});
  const std::vector<GraphBuilder::Value> none;
  EXPECT_EQ(core::message_of([&] { b.foreign("own", none, custom_layer<Table>("Table")); }),
            "needs an input, which says how many samples there are: foreign 'own'");
  EXPECT_EQ(core::message_of([&] { b.foreign("own", b.input(), custom_layer<Cell>("Cell", 4, 5)); }),
            "a cell takes vectors: foreign 'own': got [3, 2, 2]; put GraphBuilder::flatten() in front of it");
  EXPECT_THAT(core::message_of([&] { b.foreign("own", b.input(), Foreign{}); }), HasSubstr("custom_layer()"));
  EXPECT_THAT(core::message_of([&] { b.foreign("own", b.input(), {.make = [] { return nullptr; }}); }),
              HasSubstr("returns no layer: foreign 'own'"));
}

TEST(CustomLayer, AWrongOneIsNamedWhereItRuns) {
  for (const char* executor : {"cpu", "reference"}) {
    const auto refused = [&](const std::string& how) {
      OwnRig rig(executor, wrong_graph(how));
      return core::message_of([&] { rig.executor->forward(at::ones({6, 4}), {}); });
    };
    EXPECT_THAT(refused("undeclared"), HasSubstr("a layer's forward() fails: "));
    EXPECT_THAT(refused("undeclared"),
                HasSubstr(": own (Wrong): got inputs [6, 4]; declare each tensor that forward() uses"));
    EXPECT_THAT(refused("transposed"), HasSubstr("(6x4 and 3x4)"));
    EXPECT_THAT(refused("in place"), HasSubstr("changes its input in place, which other layers may read: own (Wrong)"));
    EXPECT_THAT(refused("no result"), HasSubstr("own (Wrong): expected [6, 3], got no tensor; return"));
    EXPECT_THAT(refused(""),
                HasSubstr("a layer's result has another shape than its node says: own (Wrong): expected [6, 3], got "
                          "[3]; return one sample's shape from output_shape()"));
  }
}

}  // namespace
}  // namespace trainyard::nn::custom_layer_test
