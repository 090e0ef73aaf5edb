#include "trainyard/nn/execution/sized_executor.h"

#include <string>

#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn::sized_executor_test {
namespace {

using ::testing::HasSubstr;

Graph network(int64_t side, bool pooled = true) {
  GraphBuilder b({.image = {3, side, side}, .name = "sized"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("relu", b.batch_norm("bn", x));
  return b.build(
      b.linear("fc", pooled ? b.global_average_pool("pool", x) : b.flatten("flatten", x), {.out_features = 4}));
}

// Executors of one kind with weights of their own, all alike.
struct Bound {
  ParameterSet set;
  std::unique_ptr<GradientSink> sink;
  std::unique_ptr<Executor> executor;

  Bound(const std::string& kind, const Graph& graph, const std::vector<Graph>& other_sizes) {
    sink = std::make_unique<GradientSink>(set);
    executor = make_sized_executor(kind, graph, other_sizes, {.parameters = &set, .gradients = sink.get()});
    set.allocate();
    set.initialize(3);
  }
  at::Tensor step(const at::Tensor& images) {
    sink->begin(0, 1);
    const at::Tensor logits = executor->forward(images, {.step = 1});
    logits.pow(2).sum().backward();
    sink->finish();
    return logits.detach();
  }
};

TEST(SizedExecutor, GivesTheBitsOfAnExecutorForEachSize) {
  for (const std::string kind : {"cpu", "reference"}) {
    Bound sized(kind, network(8), {network(6), network(12)});
    for (const int64_t side : {6, 8, 12, 6, 8, 8}) {
      const at::Tensor images = at::randn({5, 3, side, side});
      Bound own(kind, network(side), {});
      own.set.copy_from(sized.set);
      EXPECT_TRUE(sized.step(images).equal(own.step(images))) << kind << " " << side;
      EXPECT_TRUE(sized.set.gradients().equal(own.set.gradients())) << kind << " " << side;
      EXPECT_TRUE(sized.set.buffer(0).equal(own.set.buffer(0))) << "statistics are shared, too";
    }
    EXPECT_THAT(core::message_of([&] { sized.step(at::randn({5, 3, 7, 7})); }), HasSubstr("does not fit the model"));
  }
}

// Hears of the nodes that run.
struct Counter : NodeObserver {
  int count = 0;
  void begins() override {}
  void ran(const NodeRun&) override { ++count; }
};

TEST(SizedExecutor, TellsItsObserverOfAllSizes) {
  Bound sized("reference", network(8), {network(6)});
  Counter counter;
  sized.executor->set_observer(&counter);
  sized.step(at::randn({2, 3, 6, 6}));
  const int once = counter.count;
  EXPECT_GT(once, 4);
  sized.step(at::randn({2, 3, 8, 8}));
  EXPECT_EQ(counter.count, 2 * once);
  sized.executor->set_observer(nullptr);
  sized.step(at::randn({2, 3, 6, 6}));
  EXPECT_EQ(counter.count, 2 * once);
}

TEST(SizedExecutor, RefusesNetworksWhoseWeightsDependOnTheSize) {
  const auto message = [](const Graph& graph, const Graph& resized) {
    return core::message_of([&] { Bound("reference", graph, {resized}); });
  };
  EXPECT_THAT(message(network(8, false), network(6, false)), HasSubstr("fc.weight"));
  GraphBuilder b({.image = {3, 6, 6}, .name = "more"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  const Graph less = b.build(b.global_average_pool("pool", x));
  EXPECT_THAT(message(network(8), less), HasSubstr("other weights"));
  // One that has more weights than the main one, and one whose output has another name.
  EXPECT_EQ(message(less, network(6)),
            "a network has other weights for images of another size: bn.bias of more, images [3, 6, 6] and [3, 6, 6]: "
            "expected none, got [16]");
  Graph renamed = network(6);
  renamed.outputs.front().name = "scores";
  EXPECT_EQ(message(network(8), renamed),
            "a network has other weights for images of another size: the outputs of sized, images [3, 8, 8] and [3, 6, "
            "6]: expected the same names, got others");
}

}  // namespace
}  // namespace trainyard::nn::sized_executor_test
