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

// Height and width are told apart, and each input counts: a second one has the size of the images.
TEST(SizedExecutor, TakesTheNetworkWhoseInputsFit) {
  const auto graph_of = [](int64_t height, int64_t width) {
    GraphBuilder b({.image = {3, height, width}, .name = "two"});
    const auto x = b.add("sum", {b.input(), b.input("depth", {3, height, width})});
    return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 4}));
  };
  ParameterSet set;
  const auto executor = make_sized_executor("reference", graph_of(6, 6), {graph_of(6, 8), graph_of(8, 6)},
                                            {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  set.initialize(3);
  const auto run = [&](const Shape& images, const Shape& depth) {
    return core::message_of([&] {
      const at::Tensor one = at::randn(images), other = at::randn(depth);
      const at::Tensor logits = executor->run({{"images", one}, {"depth", other}}, {})["logits"];
      const at::Tensor mean = one.add(other).mean(at::IntArrayRef{2, 3});
      const at::Tensor weight = set.value(*set.find("fc.weight")), bias = set.value(*set.find("fc.bias"));
      EXPECT_LE(logits.sub(mean.matmul(weight.t())).sub(bias).abs().max().item<double>(), 1e-5);
    });
  };
  for (const Shape& shape : {Shape{2, 3, 6, 8}, Shape{2, 3, 8, 6}, Shape{5, 3, 6, 6}, Shape{1, 3, 8, 6}}) {
    EXPECT_EQ(run(shape, shape), "no error");
  }
  EXPECT_THAT(run({2, 3, 6, 8}, {2, 3, 8, 6}), HasSubstr("two: expected a batch of [3, 6, 6] of a float type, got "));
  EXPECT_THAT(run({2, 3, 6, 6}, {2, 3, 6, 8}),
              HasSubstr("the input 'depth' does not fit the model: two: expected a batch of [3, 6, 6] of a float type, "
                        "got [2, 3, 6, 8]"));
  EXPECT_EQ(core::message_of([&] {
              executor->run({{"images", at::randn({2, 3, 6, 6})}}, {});
            }),
            "the input 'depth' is missing: two: expected images, depth, got images");
  EXPECT_EQ(run({2, 3, 8, 6}, {2, 3, 8, 6}), "no error");
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
