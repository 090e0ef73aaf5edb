// Gradients that leave for other processes while the backward still runs: when they do, when they must not, and that
// nobody sees a difference.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::early_exchange_test {
namespace {

using ::testing::ElementsAre, ::testing::Pair;

// Two layers whose gradients fill a bucket behind a small one, whose gradient comes last: two buckets.
nn::Graph two_bucket_graph() {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "wide"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", x));
  x = b.linear("wide", x, {.out_features = 140'000});
  return b.build(b.linear("fc", x, {.out_features = kTinyClasses}));
}

TowerTrainerOptions wide_options(int replicas = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.graph = two_bucket_graph();
  options.learning_rate = optim::constant(0.001);
  return options;
}

// A rank whose peer sends what leaves every sum as it is. Notes of each all-reduce whether the backward still ran.
class OneOfTwoRanks final : public core::Communicator {
 public:
  struct Notes {
    std::function<bool()> backward_runs;
    std::vector<std::pair<int64_t, bool>> starts;  // where it begins in the gradients, and whether early
    std::vector<float> firsts;                     // the first number that left
  };
  explicit OneOfTwoRanks(Notes& notes) : notes_(notes) {}

  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool progresses_in_background() const override { return true; }
  void all_reduce(at::Tensor /*tensor*/, core::ReduceOp /*op*/) override {}
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, core::ReduceOp /*op*/) override {
    notes_.starts.emplace_back(tensor.storage_offset(), notes_.backward_runs());
    notes_.firsts.push_back(tensor[0].item<float>());
    return std::make_unique<Done>();
  }
  void broadcast(at::Tensor /*tensor*/, int /*root*/) override {}
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {tensor, tensor}; }
  void barrier() override {}
  void abort(const core::Error& /*error*/) override {}

 private:
  struct Done final : core::PendingCollective {
    bool poll() override { return true; }
    void wait() override {}
  };

  Notes& notes_;
};

constexpr float kNotWritten = 777;

// Trains `steps` and returns what has left. The gradient of the first layer, which comes last, tells whether the
// backward runs.
OneOfTwoRanks::Notes what_leaves(TowerTrainerOptions options, int steps = 1) {
  OneOfTwoRanks::Notes notes;
  options.exchange.variable_update = "horovod";
  options.devices.make_communicators = [&notes] {
    std::vector<std::unique_ptr<core::Communicator>> one;
    one.push_back(std::make_unique<OneOfTwoRanks>(notes));
    return one;
  };
  at::Tensor last;
  options.hooks.input_pre = [&, before = options.hooks.input_pre](int r, data::Batch& batch) {
    last.fill_(kNotWritten);
    if (before) before(r, batch);
  };
  TowerTrainer trainer(options, tiny_source(64, 4));
  nn::ParameterSet& set = trainer.parameters();
  last = set.gradient(*set.find("conv.weight"));
  notes.backward_runs = [&] { return last.flatten()[0].item<float>() == kNotWritten; };
  trainer.train({.steps_per_epoch = steps});
  notes.backward_runs = nullptr;
  return notes;
}

auto begins_at(bool first_is_early) {
  return ElementsAre(Pair(0, first_is_early), Pair(::testing::Gt(4 << 18), false));
}

TEST(EarlyExchange, TheFirstBucketLeavesBeforeTheLastGradientIsThere) {
  EXPECT_THAT(what_leaves(wide_options()).starts, begins_at(true));
}

TEST(EarlyExchange, LeavesOnceAStepWithMicroSteps) {
  TowerTrainerOptions options = wide_options();
  options.micro_steps = 3;
  EXPECT_THAT(what_leaves(options).starts, begins_at(true));
}

TEST(EarlyExchange, WaitsForAHookThatChangesGradients) {
  TowerTrainerOptions options = wide_options();
  options.hooks.reduce_pre = [](int, nn::ParameterSet& set) { set.gradients().fill_(2.5); };
  const OneOfTwoRanks::Notes notes = what_leaves(options);
  EXPECT_THAT(notes.starts, begins_at(false));
  EXPECT_THAT(notes.firsts, ElementsAre(2.5, 2.5));
}

TEST(EarlyExchange, WaitsForATowerOfOnesOwn) {
  TowerTrainerOptions options = wide_options();
  options.tower = graph_tower({.graph = std::exchange(options.graph, {})});
  EXPECT_THAT(what_leaves(options).starts, begins_at(false));
}

// The loss is infinite and its gradients are finite, so that the others learn of it by the mark alone. The search for
// the cause runs the step once more, and exchanges nothing.
TEST(EarlyExchange, CarriesTheMarkOfALossThatIsNotFinite) {
  for (const OnNan on_nan : {OnNan::kSkip, OnNan::kIgnore}) {
    TowerTrainerOptions options = wide_options();
    options.on_nan = on_nan;
    options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
      return nn::softmax_cross_entropy(output, labels).add(std::numeric_limits<double>::infinity());
    });
    const OneOfTwoRanks::Notes notes = what_leaves(options);
    const bool marked = on_nan == OnNan::kSkip;
    EXPECT_THAT(notes.starts, begins_at(!marked));
    ASSERT_FALSE(notes.firsts.empty());
    EXPECT_EQ(std::isnan(notes.firsts[0]), marked);
  }
}

// A gradient that is not finite, of a loss that is: the search for its origin is a backward that nobody else makes.
TEST(EarlyExchange, NothingLeavesInTheSearchForANan) {
  TowerTrainerOptions options = wide_options();
  options.on_nan = OnNan::kSkip;
  options.loss = loss_of([](const at::Tensor& output, const at::Tensor& labels) {
    const at::Tensor root = output.sub(output.detach()).square().sum().sqrt();  // 0, and its gradient NaN
    return nn::softmax_cross_entropy(output, labels).add(root);
  });
  EXPECT_THAT(what_leaves(options).starts, begins_at(true));
}

TEST(EarlyExchange, EachPassOfSharpnessAwareMinimizationLeavesByItself) {
  TowerTrainerOptions options = wide_options();
  options.sharpness_aware = optim::SharpnessAwareOptions{.rho = 0.1};
  const OneOfTwoRanks::Notes notes = what_leaves(options);
  ASSERT_EQ(notes.starts.size(), 4U);
  EXPECT_EQ(notes.starts[0], std::pair(int64_t{0}, true));
  EXPECT_EQ(notes.starts[2].first, 0);
}

TEST(EarlyExchange, LeavesInEachStep) {
  EXPECT_EQ(what_leaves(wide_options(), 3).starts.size(), 6U);
}

// The bits of one training of two replicas, by threads of one process.
using Prepare = std::function<void(TowerTrainer&)>;

std::shared_ptr<MemorySource> every_second_batch(int first) {
  const std::shared_ptr<MemorySource> all = tiny_source(64, 4);
  std::vector<at::Tensor> images, labels;
  for (int b = 0; b < 16; ++b) {
    const data::Batch batch = all->next()[0];
    if (b % 2 != first) continue;
    images.push_back(batch.tensors["images"].clone());
    labels.push_back(batch.tensors["labels"].clone());
  }
  return std::make_shared<MemorySource>(at::cat(images), at::cat(labels), 4);
}

at::Tensor trained(const TowerTrainerOptions& options, std::shared_ptr<MemorySource> source, const Prepare& prepare) {
  TowerTrainer trainer(options, std::move(source));
  if (prepare) prepare(trainer);
  trainer.train({.steps_per_epoch = 4});
  return trainer.parameters().values().clone();
}

void expect_same_bits(const std::function<void(TowerTrainerOptions&)>& change, const Prepare& prepare = {}) {
  TowerTrainerOptions options = wide_options(2);
  options.exchange.variable_update = "replicated";
  change(options);
  const at::Tensor wanted = trained(options, tiny_source(64, 4, 2), prepare);
  ASSERT_TRUE(wanted.isfinite().all().item<bool>());
  const auto transports = parallel::make_memory_transports(2);
  std::vector<at::Tensor> values(2);
  std::vector<core::Thread> processes;
  for (int p = 0; p < 2; ++p) {
    processes.emplace_back(core::ThreadOptions{}, [&, p] {
      constexpr auto kDeadline = std::chrono::seconds(60);
      const auto engine = parallel::ProcessEngine::start(transports[static_cast<size_t>(p)], kDeadline);
      TowerTrainerOptions own = wide_options();
      own.exchange.variable_update = "collective_all_reduce";
      // Ranks that share memory exchange all gradients at the end.
      own.devices.make_communicators = [&] {
        return parallel::make_process_communicators(engine, 1, kDeadline, parallel::choose_algorithm,
                                                    parallel::HostExchange::kMessages);
      };
      change(own);
      values[static_cast<size_t>(p)] = trained(own, every_second_batch(p), prepare);
    });
  }
  for (core::Thread& process : processes) process.join();
  for (const at::Tensor& each : values) EXPECT_TRUE(each.equal(wanted));
}

TEST(EarlyExchange, HasTheBitsOfThreads) {
  expect_same_bits([](TowerTrainerOptions&) {});
  expect_same_bits([](TowerTrainerOptions& options) { options.micro_steps = 2; });
  expect_same_bits([](TowerTrainerOptions& options) {
    options.start = [](nn::ParameterSet& set) {
      const nn::ParameterId wide = *set.find("wide.weight");
      set.set_mask(wide, set.value(wide).gt(0));
    };
  });
  expect_same_bits([](TowerTrainerOptions&) {},
                   [](TowerTrainer& trainer) { trainer.set_trainable("wide.bias", false); });
  expect_same_bits(
      [](TowerTrainerOptions& options) { options.sharpness_aware = optim::SharpnessAwareOptions{.rho = 0.1}; });
}

}  // namespace
}  // namespace trainyard::train::early_exchange_test
