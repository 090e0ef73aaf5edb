// Which gradients the steps of a plan give to what they read, and where several have the same one.
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/testing/drawn_values.h"
#include "trainyard/nn/testing/replica.h"

namespace trainyard::nn::cpu::plan_gradients_test {
namespace {

using Value = GraphBuilder::Value;

Value convolution(GraphBuilder& b, const std::string& name, Value x) {
  return b.convolution(name, x, {.out_channels = 20, .kernel = 3, .padding = Padding::all(1)});
}

// Returns how many gradients of their inputs all steps give in a training step.
size_t gradients_given(const Graph& graph, const at::Tensor& images) {
  struct Listener : ValueObserver {
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.phase == NodeRun::Phase::kBackward) given += values.size();
    }
    size_t given = 0;
  } listener;
  Replica replica("cpu", graph, at::kFloat, {.convolutions = ConvolutionPolicy::kByShape});
  replica.executor->set_observer(&listener);
  replica.sink.begin(0, 1);
  replica.executor->forward(images, {.seed = 3}).sum().backward();
  replica.sink.finish();
  replica.executor->set_observer(nullptr);
  return listener.given;
}

// The step behind a map flattens it, and that in front of it lays out the image: each gives a gradient, too. The linear
// layer is the last one, behind a step that flattens the image.
TEST(PlanGradients, AreNotGivenToImagesThatWantNone) {
  struct Case {
    std::string name;
    std::function<Value(GraphBuilder&, Value)> build;
    size_t unwanted = 0, wanted = 0;
  };
  const auto norm = [](GraphBuilder& b, Value x) { return b.flatten("flat", b.batch_norm("layer", x)); };
  const auto conv = [](GraphBuilder& b, Value x) { return b.flatten("flat", convolution(b, "layer", x)); };
  const auto linear = [](GraphBuilder& b, Value x) {
    return b.linear("layer", b.flatten("flat", x), {.out_features = 5});
  };
  for (const Case& c : {Case{"norm", norm, 1, 3}, Case{"convolution", conv, 1, 3}, Case{"linear", linear, 0, 2}}) {
    GraphBuilder b({.image = {20, 5, 4}, .name = c.name});
    const Graph graph = b.build(c.build(b, b.input()));
    const at::Tensor images = normal_images({3, 20, 5, 4});
    EXPECT_EQ(gradients_given(graph, images), c.unwanted) << c.name;
    EXPECT_EQ(gradients_given(graph, images.clone().requires_grad_(true)), c.wanted) << c.name;
  }
}

// The terms of a sum have one gradient, in one place: a norm may write its own over it only where no other term has
// still to read it.
TEST(PlanGradients, NormsOfOneSumReadTheSameOne) {
  GraphBuilder b({.image = {20, 5, 4}, .name = "sum"});
  std::vector<Value> terms;
  for (const std::string term : {"a", "b", "c"}) {
    terms.push_back(b.batch_norm("norm_" + term, convolution(b, "conv_" + term, b.input())));
  }
  const Graph graph = b.build(b.flatten("flat", b.add("sum", terms)));
  const auto gradients_of = [&](const char* executor, at::ScalarType dtype) {
    Replica replica(executor, graph, dtype, {.convolutions = ConvolutionPolicy::kByShape});
    fill_parameters(replica.set);
    replica.sink.begin(0, 1);
    const at::Tensor images = normal_images({3, 20, 5, 4}).to(dtype);
    softmax_cross_entropy(replica.executor->forward(images, {.seed = 3}), at::zeros({3}, at::kLong)).backward();
    replica.sink.finish();
    return replica.set.gradients().clone();
  };
  EXPECT_LT(distance(gradients_of("cpu", at::kFloat), gradients_of("reference", at::kDouble)), 1e-4);
}

}  // namespace
}  // namespace trainyard::nn::cpu::plan_gradients_test
