// What executors promise beyond single layers: binding, evaluation beside training, shared values, replicas on threads,
// micro-steps, custom layers.

#include "trainyard/nn/reference/reference_executor.h"

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/keep_mask.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/testing/plain_step.h"

namespace trainyard::nn::reference_executor_test {
namespace {

Graph small_graph(bool with_norm) {
  GraphBuilder b({.image = {3, 6, 6}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::all(1)});
  if (with_norm) x = b.batch_norm("bn", x);
  x = b.dropout("drop", b.activation("relu", x), 0.25);
  return b.build(b.linear("fc", b.flatten("flatten", x), {.out_features = 5}));
}

at::Tensor images(int64_t batch) {
  return at::linspace(-2, 2, batch * 108).sin().view({batch, 3, 6, 6});
}
at::Tensor labels(int64_t batch) {
  return at::linspace(0, 4.99, batch).to(at::kLong);
}

struct Replica {
  explicit Replica(const Graph& graph, uint64_t seed = 1) : sink(set) {
    executor = make_executor("reference", graph, {.parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(seed);
  }
  double step(const at::Tensor& x, const at::Tensor& y, int64_t number) {
    return plain_step(*executor, set, sink, x, y, {.seed = 3, .step = number}, 0.1);
  }
  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
};

TEST(ReferenceExecutor, Learns) {
  Replica replica(small_graph(true));
  const double first = replica.step(images(8), labels(8), 0);
  double last = first;
  for (int64_t step = 1; step < 40; ++step) last = replica.step(images(8), labels(8), step);
  EXPECT_LT(last, 0.5 * first);
}

TEST(ReferenceExecutor, EvaluatesBesideTraining) {
  Replica replica(small_graph(true));
  const auto evaluation =
      make_executor("reference", replica.executor->graph(), {.mode = Mode::kInference, .parameters = &replica.set});
  const at::Tensor before = evaluation->forward(images(2), {});
  replica.step(images(8), labels(8), 0);
  const at::Tensor statistics = replica.set.buffer(0).clone();
  const at::Tensor after = evaluation->forward(images(2), {});
  EXPECT_FALSE(at::equal(before, after)) << "it must see the new values and statistics";
  EXPECT_TRUE(at::equal(after, evaluation->forward(images(2), {}))) << "no dropout";
  EXPECT_TRUE(at::equal(replica.set.buffer(0), statistics));
}

TEST(ReferenceExecutor, SharesValuesWithAServer) {
  const Graph graph = small_graph(true);
  Replica server(graph);
  ParameterSet shared = ParameterSet::sharing_values(server.set);
  GradientSink sink(shared);
  const auto worker = make_executor("reference", graph, {.parameters = &shared, .gradients = &sink});
  sink.begin(0, 1);
  const at::Tensor loss = softmax_cross_entropy(worker->forward(images(4), {}), labels(4));
  {
    // An asynchronous server updates between a worker's forward and backward.
    const at::NoGradGuard no_grad;
    server.set.values().mul_(0.5);
    server.set.values_changed();
  }
  EXPECT_NO_THROW(loss.backward());
  EXPECT_GT(shared.gradients().abs().sum().item<double>(), 0);
  EXPECT_EQ(server.set.gradients().abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::equal(shared.values(), server.set.values()));
  EXPECT_FALSE(at::equal(shared.buffer(0), server.set.buffer(0))) << "statistics are the worker's own";
}

// Two CPU replicas on threads, each with its own set: the mean of their gradients is the whole batch's.
TEST(ReferenceExecutor, RunsReplicasOnThreads) {
  const Graph graph = small_graph(false);
  Replica whole(graph), left(graph), right(graph);
  const at::Tensor x = images(8), y = labels(8);
  const auto gradients = [&](Replica& replica, int64_t begin, int64_t count) {
    replica.sink.begin(0, 1);
    softmax_cross_entropy(replica.executor->forward(x.narrow(0, begin, count), {.seed = 3, .first_sample = begin}),
                          y.narrow(0, begin, count))
        .backward();
    replica.sink.finish();
  };
  gradients(whole, 0, 8);
  {
    core::Thread one({.name = "replica 0"}, [&] { gradients(left, 0, 4); });
    core::Thread two({.name = "replica 1"}, [&] { gradients(right, 4, 4); });
    one.join();
    two.join();
  }
  const at::Tensor mean = (left.set.gradients() + right.set.gradients()) / 2;
  EXPECT_LT((mean - whole.set.gradients()).norm().item<double>(), 1e-6 * whole.set.gradients().norm().item<double>());
}

TEST(ReferenceExecutor, MicroStepsEqualTheWholeBatch) {
  const Graph graph = small_graph(false);
  Replica whole(graph), split(graph);
  const at::Tensor x = images(9), y = labels(9);
  whole.sink.begin(0, 1);
  softmax_cross_entropy(whole.executor->forward(x, {.seed = 3}), y).backward();
  for (int micro_step = 0; micro_step < 3; ++micro_step) {
    split.sink.begin(micro_step, 3);
    const int64_t begin = 3 * micro_step;
    const at::Tensor output = split.executor->forward(x.narrow(0, begin, 3), {.seed = 3, .first_sample = begin});
    (softmax_cross_entropy(output, y.narrow(0, begin, 3)) / 3).backward();
    split.sink.finish();
  }
  EXPECT_LT((split.set.gradients() - whole.set.gradients()).norm().item<double>(),
            1e-6 * whole.set.gradients().norm().item<double>());
}

TEST(ReferenceExecutor, MasksDependOnStepMicroStepAndSeed) {
  Replica replica(small_graph(false));
  const auto output = [&](StepRandom random) { return replica.executor->forward(images(2), random).detach(); };
  const at::Tensor base = output({.seed = 1, .step = 1, .micro_step = 1, .first_sample = 1});
  EXPECT_TRUE(at::equal(base, output({.seed = 1, .step = 1, .micro_step = 1, .first_sample = 1})));
  EXPECT_FALSE(at::equal(base, output({.seed = 2, .step = 1, .micro_step = 1, .first_sample = 1})));
  EXPECT_FALSE(at::equal(base, output({.seed = 1, .step = 2, .micro_step = 1, .first_sample = 1})));
  EXPECT_FALSE(at::equal(base, output({.seed = 1, .step = 1, .micro_step = 2, .first_sample = 1})));
  EXPECT_FALSE(at::equal(base, output({.seed = 1, .step = 1, .micro_step = 1, .first_sample = 2})));
}

TEST(ReferenceExecutor, DropsElementsOfASingleSample) {
  GraphBuilder b({.image = {4, 5, 3}, .name = "drop"});
  const Graph graph = b.build(b.flatten("flat", b.dropout("drop", b.input(), 0.25)));
  ParameterSet set;
  const auto executor = make_executor("reference", graph, {.parameters = &set});
  set.allocate();
  const StepRandom random{.seed = 5, .step = 2, .first_sample = 3};
  at::Tensor mask = at::empty({1, 60});
  fill_keep_mask(mask.mutable_data_ptr<float>(), 1, 60, 0.25, 1, "drop", random);
  const at::Tensor x = at::randn({1, 4, 5, 3});
  EXPECT_TRUE(executor->forward(x, random).allclose(x.view({1, 60}) * mask / 0.75, 1e-6, 1e-6));
}

// Records where each node's value lies, and which values are still there when it is made.
class MemoryObserver final : public ValueObserver {
 public:
  explicit MemoryObserver(const Graph& graph) : graph_(graph) {}
  void made(const NodeRun& run, std::span<const at::Tensor> values) override {
    const auto node = static_cast<size_t>(run.nodes[0]);
    places.resize(graph_.nodes.size());
    storages_.resize(graph_.nodes.size());
    places[node] = values[0].const_data_ptr();
    storages_[node] = values[0].storage().getWeakStorageImpl();
    std::string& names = alive.emplace_back(graph_.nodes[node].name + ":");
    for (size_t id = 0; id <= node; ++id) {
      if (storages_[id] && !storages_[id]->expired()) names += " " + graph_.nodes[id].name;
    }
  }
  std::vector<const void*> places;  // by node
  std::vector<std::string> alive;   // "sum: left sum" when the sum was made

 private:
  const Graph& graph_;
  std::vector<std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>>> storages_;
};

// A ReLU and a sum are written over their first input where its backward does not need it and nothing else reads it.
TEST(ReferenceExecutor, OverwritesWhatNothingElseNeeds) {
  GraphBuilder b({.image = {4, 5, 6}, .name = "overwrites"});
  const Convolution op{.out_channels = 4, .kernel = 3, .padding = Padding::all(1)};
  auto x = b.activation("relu_of_input", b.input());
  x = b.activation("relu", b.convolution("conv", x, op));
  x = b.activation("relu_of_norm", b.batch_norm("norm", x));
  x = b.activation("silu", b.convolution("before_silu", x, op), Activation::Function::kSilu);
  const auto twice = b.convolution("twice", x, op);
  x = b.convolution("once", b.activation("relu_of_twice", twice), op);
  x = b.activation("relu_of_sum", b.add("sum", {x, twice}));
  x = b.activation("relu_of_pool", b.max_pool("pool", x, {.kernel = 2, .stride = 2}));
  const auto map = b.convolution("map", x, op);
  x = b.linear("fc", b.global_average_pool("mean", b.activation("relu_of_map", map)), {.out_features = 3});
  const Graph graph =
      b.build(b.linear("head", b.activation("relu_of_fc", x), {.out_features = 2}), {{"map", map.id, 0}});
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    ParameterSet set;
    GradientSink sink(set);
    const auto executor = make_executor("reference", graph, {.mode = mode, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(1);
    MemoryObserver memory(graph);
    executor->set_observer(&memory);
    executor->run({{"images", at::randn({2, 4, 5, 6})}}, {});
    std::vector<std::string> overwrites;
    for (const Node& node : graph.nodes) {
      if (node.inputs.empty() || node.inputs[0] == 0) continue;
      const void* const input = memory.places.at(static_cast<size_t>(node.inputs[0]));
      if (memory.places[static_cast<size_t>(node.id)] == input) overwrites.push_back(node.name);
    }
    EXPECT_EQ(overwrites, (std::vector<std::string>{"relu", "relu_of_norm", "sum", "relu_of_sum", "relu_of_fc"}));
  }
}

// In inference a value is there until its last reader has run, and an output to the end.
TEST(ReferenceExecutor, FreesValuesBehindTheirLastReader) {
  GraphBuilder b({.image = {4, 5, 6}, .name = "frees"});
  constexpr auto kTanh = Activation::Function::kTanh;
  const auto first = b.activation("first", b.input(), kTanh), second = b.activation("second", first, kTanh);
  const auto third = b.activation("third", second, kTanh);
  const auto joined = b.concat("joined", {third, first});
  const auto last = b.activation("last", joined, kTanh);
  const Graph graph = b.build(b.global_average_pool("pool", last), {{"second", second.id, 0}});
  ParameterSet set;
  const auto executor = make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
  set.allocate();
  MemoryObserver memory(graph);
  executor->set_observer(&memory);
  executor->run({{"images", at::randn({2, 4, 5, 6})}}, {});
  EXPECT_EQ(memory.alive,
            (std::vector<std::string>{"first: first", "second: first second", "third: first second third",
                                      "joined: second joined", "last: second last", "pool: second pool"}));
}

TEST(ReferenceExecutor, PrefixesNames) {
  ParameterSet set;
  const auto executor =
      make_executor("reference", small_graph(true), {.name_prefix = "generator/", .parameters = &set});
  set.allocate();
  EXPECT_TRUE(set.find("generator/conv.weight").has_value());
  EXPECT_TRUE(set.find_buffer("generator/bn.running_var").has_value());
}

TEST(ReferenceExecutor, SaysWhatIsWrong) {
  const Graph graph = small_graph(false);
  Replica replica(graph);
  EXPECT_EQ(core::message_of([&] {
              replica.executor->forward(at::zeros({2, 3, 6, 5}), {});
            }),
            "the input 'images' does not fit the model: small: expected a batch of [3, 6, 6] of a float type, got [2, "
            "3, 6, 5] "
            "of Float");
  EXPECT_EQ(core::message_of([&] {
              replica.executor->forward(at::zeros({2, 3, 6, 6}, at::kByte), {});
            }),
            "the input 'images' does not fit the model: small: expected a batch of [3, 6, 6] of a float type, got [2, "
            "3, 6, 6] "
            "of Byte");
  EXPECT_EQ(core::message_of([&] {
              replica.executor->forward(at::zeros({0, 3, 6, 6}), {});
            }).substr(0, 41),
            "the input 'images' does not fit the model");
  ParameterSet unallocated;
  const auto early = make_executor("reference", graph, {.parameters = &unallocated});
  EXPECT_EQ(core::message_of([&] { early->forward(images(1), {}); }).substr(0, 36),
            "the parameter set is not allocated: ");
  EXPECT_EQ(core::message_of([&] { make_executor("referense", graph, {.parameters = &unallocated}); },
                             core::ErrorCode::kNotFound)
                .substr(0, 56),
            "unknown executor 'referense'; did you mean 'reference'? ");
  EXPECT_EQ(core::message_of([&] { make_executor("reference", graph, {}); }).substr(0, 34),
            "an executor needs a parameter set:");
  EXPECT_EQ(core::message_of([&] {
              make_executor("reference", graph, {.parameters = &replica.set, .gradients = nullptr});
              make_executor("reference", graph, {.parameters = &unallocated, .gradients = &replica.sink});
            }),
            "the gradient sink belongs to another parameter set: small");
}

}  // namespace
}  // namespace trainyard::nn::reference_executor_test
