// A user's torch::nn::Module as a model: it trains, its numbers live in the set, it takes part in evaluation and
// sharing as any other layer.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/nn/testing/plain_step.h"

namespace trainyard::nn::foreign_module_test {
namespace {

// Linear with a frozen scale, a running mean of its inputs, and a counter of another dtype.
class UserNet : public torch::nn::Module {
 public:
  UserNet() {
    weight_ = register_parameter("weight", at::full({3, 12}, 0.01) + 0.02 * at::eye(3, 12));
    bias_ = register_parameter("bias", at::zeros({3}));
    scale_ = register_parameter("scale", at::full({1}, 2.0), /*requires_grad=*/false);
    mean_ = register_buffer("mean", at::zeros({12}));
    calls_ = register_buffer("calls", at::zeros({}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor flat = x.flatten(1);
    if (is_training()) {
      mean_.mul_(0.5).add_(flat.detach().mean(0), 0.5);
      calls_.add_(1);
    }
    return at::linear(flat - mean_, weight_ * scale_, bias_);
  }

 private:
  at::Tensor weight_, bias_, scale_, mean_, calls_;
};

Graph graph_of(const std::vector<int64_t>& output_shape = {3}) {
  GraphBuilder b({.image = {3, 2, 2}, .name = "user"});
  return b.build(
      b.foreign("body", b.input(), foreign_op([] { return std::make_shared<UserNet>(); }, output_shape, "UserNet")));
}

at::Tensor images() {
  return at::linspace(0, 59, 60).square().sin().view({5, 3, 2, 2});
}
at::Tensor labels() {
  return at::tensor({0, 1, 2, 0, 1}, at::kLong);
}

class ForeignModuleTest : public ::testing::Test {
 protected:
  ForeignModuleTest() : sink_(set_), graph_(graph_of()) {
    executor_ = make_executor("reference", graph_, {.parameters = &set_, .gradients = &sink_});
    set_.allocate();
    set_.initialize(1);
  }
  double step() { return plain_step(*executor_, set_, sink_, images(), labels(), {}, 0.2); }
  at::Tensor value(const char* name) { return set_.value(*set_.find(name)); }
  at::Tensor buffer(const char* name) { return set_.buffer(*set_.find_buffer(name)); }

  ParameterSet set_;
  GradientSink sink_;
  Graph graph_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ForeignModuleTest, BringsItsOwnStart) {
  EXPECT_TRUE(at::equal(value("body.weight"), UserNet().parameters()[0]));
  EXPECT_EQ(set_.size(), 2u) << "the frozen scale is no parameter";
  EXPECT_EQ(buffer("body.scale").item<float>(), 2);
  EXPECT_EQ(buffer("body.calls").scalar_type(), at::kLong);
  EXPECT_FALSE(set_.segment(*set_.find("body.bias")).spec.decay);
  EXPECT_EQ(graph_.node("body").description(), "UserNet");
}

TEST_F(ForeignModuleTest, TrainsThroughTheSet) {
  const double first = step();
  double last = first;
  for (int i = 0; i < 60; ++i) last = step();
  EXPECT_LT(last, 0.5 * first);
  EXPECT_EQ(buffer("body.calls").item<int64_t>(), 61);
  EXPECT_EQ(buffer("body.scale").item<float>(), 2) << "frozen";
}

TEST_F(ForeignModuleTest, FreezesItsParameters) {
  step();
  const at::Tensor weight = value("body.weight").clone(), bias = value("body.bias").clone();
  set_.set_trainable(*set_.find("body.weight"), false);
  step();
  EXPECT_TRUE(at::equal(value("body.weight"), weight)) << "its gradient is zero";
  EXPECT_FALSE(at::equal(value("body.bias"), bias));
  EXPECT_EQ(buffer("body.calls").item<int64_t>(), 2) << "a module's buffers are its own affair";

  set_.set_trainable(*set_.find("body.bias"), false);
  EXPECT_FALSE(executor_->forward(images(), {}).requires_grad());
  set_.set_trainable(*set_.find("body.weight"), true);
  step();
  EXPECT_FALSE(at::equal(value("body.weight"), weight));
}

TEST_F(ForeignModuleTest, FreezesInTheCpuPlanAsInTheReference) {
  ParameterSet set;
  GradientSink sink(set);
  const auto cpu = make_executor("cpu", graph_, {.parameters = &set, .gradients = &sink});
  set.allocate();
  set.initialize(1);
  for (const char* frozen : {"body.weight", "body.bias"}) {
    SCOPED_TRACE(frozen);
    for (ParameterSet* each : {&set, &set_}) {
      for (const char* name : {"body.weight", "body.bias"}) each->set_trainable(*each->find(name), name != frozen);
    }
    sink.begin(0, 1);
    softmax_cross_entropy(cpu->forward(images(), {}), labels()).backward();
    sink.finish();
    sink_.begin(0, 1);
    softmax_cross_entropy(executor_->forward(images(), {}), labels()).backward();
    sink_.finish();
    EXPECT_TRUE(at::allclose(set.gradients(), set_.gradients(), 1e-5, 1e-7));
    EXPECT_EQ(set.gradient(*set.find(frozen)).count_nonzero().item<int64_t>(), 0);
  }
  for (const char* name : {"body.weight", "body.bias"}) set.set_trainable(*set.find(name), false);
  EXPECT_FALSE(cpu->forward(images(), {}).requires_grad());
}

// A module's own parameters ask for gradients from their beginning on.
TEST_F(ForeignModuleTest, ComputesNoGradientsWithoutASink) {
  ParameterSet set;
  const auto executor = make_executor("reference", graph_, {.parameters = &set});
  set.allocate();
  set.initialize(1);
  EXPECT_FALSE(executor->forward(images(), {}).requires_grad());
  EXPECT_TRUE(executor_->forward(images(), {}).requires_grad());
}

TEST_F(ForeignModuleTest, LoadsBeforeItsFirstStep) {
  step();
  core::MemoryState state;
  set_.save(state);
  ParameterSet fresh;
  const auto executor = make_executor("reference", graph_, {.mode = Mode::kInference, .parameters = &fresh});
  fresh.allocate();
  fresh.load(state);
  const auto here = make_executor("reference", graph_, {.mode = Mode::kInference, .parameters = &set_});
  EXPECT_TRUE(at::equal(executor->forward(images(), {}), here->forward(images(), {})));
  EXPECT_EQ(buffer("body.calls").item<int64_t>(), 1) << "inference does not count";
}

TEST_F(ForeignModuleTest, RefusesAnotherResultThanItsNodeSays) {
  ParameterSet set;
  const auto executor = make_executor("reference", graph_of({4}), {.parameters = &set});
  set.allocate();
  try {
    executor->forward(images(), {});
    FAIL() << "the graph's shapes would be wrong from here on";
  } catch (const core::Error& error) {
    EXPECT_STREQ(error.what(),
                 "a layer's result has another shape than its node says: body (UserNet): expected [5, 4], got [5, 3]; "
                 "return one "
                 "sample's shape from output_shape() of a custom layer; give foreign_op() that of a module");
  }
}

}  // namespace
}  // namespace trainyard::nn::foreign_module_test
