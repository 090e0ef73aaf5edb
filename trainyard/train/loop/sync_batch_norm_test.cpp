// Trainings whose batch norms see the batches of all replicas: N replicas of B images are one replica of N x B,
// whatever else the step does.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/worst.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::sync_batch_norm_test {
namespace {

using core::ErrorCode;

// What a training leaves behind.
struct Trained {
  std::vector<double> losses;  // of each step, the mean over replicas
  at::Tensor values, statistics;
};

class StepWatcher : public Callback {
 public:
  std::vector<double> losses, communication;
  std::string name() const override { return "step_watcher"; }
  void after_step(Trainer& trainer, const StepView& view) override {
    losses.push_back(dynamic_cast<TowerTrainer&>(trainer).last_base_loss());
    communication.push_back(view.times.communication);
  }
};

at::Tensor statistics_of(const nn::ParameterSet& set) {
  std::vector<at::Tensor> all;
  for (size_t b = 0; b < set.buffer_count(); ++b) all.push_back(set.buffer(static_cast<int>(b)).flatten());
  return at::cat(all);
}

Trained train(const TowerTrainerOptions& options, const std::shared_ptr<data::BatchSource>& source, int64_t steps) {
  TowerTrainer trainer(options, source);
  const auto watcher = std::make_shared<StepWatcher>();
  trainer.add(watcher);
  trainer.train({.steps_per_epoch = steps});
  return {watcher->losses, trainer.parameters().values().clone(), statistics_of(trainer.parameters())};
}

// How far two trainings are apart: the largest difference of a loss, of a value and of a statistic, each beside the
// norm of what it is of.
double drift(const Trained& a, const Trained& b) {
  double worst = 0;
  for (size_t s = 0; s < a.losses.size(); ++s) {
    core::take_worst(worst, std::abs(a.losses[s] - b.losses[s]) / std::abs(b.losses[s]));
  }
  const auto apart = [](const at::Tensor& x, const at::Tensor& y) {
    return ((x - y).norm() / y.norm()).item<double>();
  };
  core::take_worst(worst, apart(a.values, b.values));
  core::take_worst(worst, apart(a.statistics, b.statistics));
  return worst;
}

// Images of noise, in global batches of `global`, for all `replicas` or, of a process, `own` of them from `first` on.
// With `turned`, each batch's images begin elsewhere: the same sums in another order.
struct Share {
  int64_t turned = 0;
  int first = 0, own = -1;  // -1: all
};
std::shared_ptr<data::BatchSource> noise(int64_t steps, int64_t global, int replicas, Share share = {}) {
  if (share.own < 0) share.own = replicas;
  const int64_t batch = global / replicas, here = batch * share.own, samples = steps * here;
  at::Tensor images = at::empty({samples, 3, 32, 32}), labels = at::empty({samples}, at::kLong);
  auto* pixel = images.mutable_data_ptr<float>();
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t place = share.first * batch + i % here;
    const int64_t sample = i / here * global + (place + share.turned) % global;
    core::RandomStream stream(3, "sync_batch_norm", {static_cast<uint64_t>(sample)});
    labels.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(stream.below(10));
    // Images of other brightness, so that the statistics of a few are not those of all.
    const float brightness = stream.normal();
    for (int64_t p = 0; p < 3 * 32 * 32; ++p) *pixel++ = stream.normal() + brightness;
  }
  return std::make_shared<MemorySource>(images, labels, batch, share.own);
}

TowerTrainerOptions resnet20_options(int replicas) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.graph = models::build_model("resnet20", "cifar10", {.num_classes = 10});
  options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  options.threads.intra_op_threads = replicas;
  options.exchange.sync_batch_norm = true;
  // At a small rate rounding grows slowly: at 50 times this one, nothing is left to compare after 20 steps.
  options.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  options.learning_rate = optim::constant(0.001);
  return options;
}

// Four replicas of 2 images beside one of 8. Rounding is the only difference, and training makes it grow from step to
// step. What it may grow to is measured by trainings in which nothing but the order of a batch's images is another one.
// Each of them is one draw of the same error, and so is the training in question: none is expected to be three times
// the largest of the others. Replicas that do not meet are further away at once.
void expect_one_training(at::ScalarType dtype, int64_t steps, double largest) {
  constexpr int64_t kGlobal = 8;
  TowerTrainerOptions options = resnet20_options(1);
  options.devices.dtype = dtype;
  const Trained whole = train(options, noise(steps, kGlobal, 1), steps);
  double permuted = 0;
  for (const int64_t turned : {1, 3, 6}) {
    permuted = std::max(permuted, drift(train(options, noise(steps, kGlobal, 1, {.turned = turned}), steps), whole));
  }
  options = resnet20_options(4);
  options.devices.dtype = dtype;
  const double synchronized = drift(train(options, noise(steps, kGlobal, 4), steps), whole);
  options.exchange.sync_batch_norm = false;
  const double alone = drift(train(options, noise(steps, kGlobal, 4), steps), whole);
  SCOPED_TRACE(testing::Message() << "synchronized " << synchronized << ", permuted " << permuted << ", alone "
                                  << alone);
  testing::Test::RecordProperty("synchronized", fmt::format("{:.2e}", synchronized));
  testing::Test::RecordProperty("permuted", fmt::format("{:.2e}", permuted));
  EXPECT_LE(synchronized, 3 * permuted);
  EXPECT_LT(permuted, largest);
  EXPECT_GT(alone, 10 * largest);
}

TEST(SyncBatchNorm, FourReplicasTrainResnet20AsOne) {
  expect_one_training(at::kFloat, 20, 2e-3);
}

TEST(SyncBatchNorm, FourReplicasTrainResnet20AsOneInBfloat16) {
  expect_one_training(at::kBFloat16, 5, 5e-3);
}

// Threads and processes, in any mixture, have the same bits: every sum is in the order of the replicas.
TEST(SyncBatchNorm, ProcessesHaveTheBitsOfThreads) {
  constexpr int kReplicas = 4;
  constexpr int64_t kSteps = 3;
  TowerTrainerOptions options = resnet20_options(kReplicas);
  options.exchange.variable_update = "replicated";
  const Trained threads = train(options, noise(kSteps, 16, kReplicas), kSteps);
  for (const std::vector<int>& layout : {std::vector{1, 3}, std::vector{2, 2}, std::vector{1, 1, 1, 1}}) {
    const auto transports = parallel::make_memory_transports(static_cast<int>(layout.size()));
    std::vector<Trained> trained(layout.size());
    std::vector<core::Thread> processes;
    int first = 0;
    for (size_t p = 0; p < layout.size(); ++p) {
      processes.emplace_back(core::ThreadOptions{.name = "process"}, [&, p, first] {
        const auto exchange = parallel::ProcessEngine::start(transports[p], std::chrono::minutes(1));
        TowerTrainerOptions own = resnet20_options(layout[p]);
        own.threads.intra_op_threads = layout[p];
        own.exchange.variable_update = "collective_all_reduce";
        own.devices.make_communicators = [&] { return parallel::make_process_communicators(exchange, layout[p]); };
        trained[p] = train(own, noise(kSteps, 16, kReplicas, {.first = first, .own = layout[p]}), kSteps);
      });
      first += layout[p];
    }
    for (core::Thread& process : processes) process.join();
    for (const Trained& process : trained) {
      EXPECT_TRUE(at::equal(process.values, threads.values)) << layout.size() << " processes";
      EXPECT_TRUE(at::equal(process.statistics, threads.statistics)) << layout.size() << " processes";
    }
  }
}

TEST(SyncBatchNorm, RecomputationTakesTheSavedStatistics) {
  TowerTrainerOptions options = resnet20_options(4);
  const Trained kept = train(options, noise(3, 16, 4), 3);
  for (const auto recomputation : {nn::Recomputation::kElementwise, nn::Recomputation::kBlocks}) {
    options.devices.kernels.recomputation = recomputation;
    const Trained again = train(options, noise(3, 16, 4), 3);
    EXPECT_EQ(again.losses, kept.losses);
    EXPECT_TRUE(at::equal(again.values, kept.values));
    EXPECT_TRUE(at::equal(again.statistics, kept.statistics));
  }
}

// On the small model, whose curve stays near: with all that a step may have besides.
TEST(SyncBatchNorm, WorksWithWhateverElseAStepDoes) {
  using Change = std::function<void(TowerTrainerOptions&)>;
  const std::vector<std::pair<const char*, Change>> changes{
      {"nothing", [](TowerTrainerOptions&) {}},
      {"reference", [](TowerTrainerOptions& o) { o.devices.executor = "reference"; }},
      {"double", [](TowerTrainerOptions& o) { o.devices.executor = "reference", o.devices.dtype = at::kDouble; }},
      {"micro-steps", [](TowerTrainerOptions& o) { o.micro_steps = 2; }},
      {"sharpness-aware",
       [](TowerTrainerOptions& o) { o.sharpness_aware = optim::SharpnessAwareOptions{.rho = 0.05}; }},
      {"averaged weights", [](TowerTrainerOptions& o) { o.average = optim::WeightAverageOptions{.decay = 0.9}; }},
      {"no fusions", [](TowerTrainerOptions& o) { o.devices.kernels.fusions = nn::Fusions::none(); }}};
  for (const auto& [name, change] : changes) {
    TowerTrainerOptions options = tiny_options({}, 1);
    change(options);
    const Trained whole = train(options, tiny_source(240, 12, 1), 10);
    for (const char* mode : {"parameter_server", "replicated"}) {
      options = tiny_options({}, 3);
      change(options);
      options.exchange.variable_update = mode;
      options.exchange.reduction = parallel::GradientReduction::kMean;
      const auto source = [] { return tiny_source(240, 4, 3); };
      EXPECT_GT(drift(train(options, source(), 10), whole), 1e-3) << name << ": the data must tell";
      options.exchange.sync_batch_norm = true;
      EXPECT_LT(drift(train(options, source(), 10), whole), 2e-5) << name << ", " << mode;
    }
  }
}

// All replicas' running statistics are those of the whole batch, and there is nothing else to save.
TEST(SyncBatchNorm, ACheckpointHasTheSameNamesAndGoesOnWithTheSameBits) {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.exchange.variable_update = "replicated";
  options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  core::MemoryState plain, halfway, straight, resumed;
  {
    TowerTrainer trainer(options, tiny_source(240, 8, 2));
    trainer.train({.steps_per_epoch = 4});
    trainer.save(plain);
  }
  options.exchange.sync_batch_norm = true;
  TowerTrainer trainer(options, tiny_source(240, 8, 2));
  trainer.train({.steps_per_epoch = 8});
  trainer.save(straight);
  {
    TowerTrainer first(options, tiny_source(240, 8, 2));
    first.train({.steps_per_epoch = 4});
    first.save(halfway);
  }
  EXPECT_EQ(halfway.names(""), plain.names(""));
  TowerTrainer second(options, tiny_source(240, 8, 2));
  second.load(halfway);
  second.train({.steps_per_epoch = 8, .starting_step = 4});
  second.save(resumed);
  for (const std::string& name : straight.names("model/")) {
    EXPECT_TRUE(at::equal(std::as_const(straight).tensor(name), std::as_const(resumed).tensor(name))) << name;
  }
}

TEST(SyncBatchNorm, AReplicaThatFailsWakesThoseThatWaitInANorm) {
  TowerTrainerOptions options = tiny_options({}, 3);
  options.exchange.sync_batch_norm = true;
  int64_t batches = 0;  // of replica 1
  options.hooks.input_pre = [&](int replica, data::Batch&) {
    if (replica != 1 || ++batches != 3) return;
    // The others are in their first norm by then.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    throw core::Error(ErrorCode::kNoSpace, "the disk is full");
  };
  TowerTrainer trainer(options, tiny_source(240, 8, 3));
  const auto begin = std::chrono::steady_clock::now();
  const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 5}); });
  EXPECT_EQ(error.code(), ErrorCode::kNoSpace) << error.what();
  EXPECT_TRUE(core::says(error, "replica 1") && core::says(error, "step 3")) << error.what();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "well before the deadline";
}

TEST(SyncBatchNorm, TheDeadlineCountsInANormToo) {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.exchange.sync_batch_norm = true;
  options.exchange.deadline = std::chrono::milliseconds(200);
  options.hooks.input_pre = [&](int replica, data::Batch&) {
    if (replica == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  };
  TowerTrainer trainer(options, tiny_source(240, 8, 2));
  const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 5}); });
  EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
}

TEST(SyncBatchNorm, WaitingInANormCountsAsCommunication) {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.exchange.sync_batch_norm = true;
  options.hooks.input_pre = [&](int replica, data::Batch&) {
    if (replica == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
  };
  TowerTrainer trainer(options, tiny_source(240, 8, 2));
  const auto watcher = std::make_shared<StepWatcher>();
  trainer.add(watcher);
  trainer.train({.steps_per_epoch = 2});
  for (const double seconds : watcher->communication) EXPECT_GT(seconds, 0.04);
}

TEST(SyncBatchNorm, ModesWithoutACommonStepAreRefused) {
  for (const char* mode : {"independent", "asynchronous"}) {
    TowerTrainerOptions options = tiny_options({}, 2);
    options.exchange.sync_batch_norm = true;
    options.exchange.variable_update = mode;
    const std::string problem = core::message_of([&] { options.validate(); });
    EXPECT_NE(problem.find("sync_batch_norm cannot be used"), std::string::npos) << problem;
    EXPECT_NE(problem.find(mode), std::string::npos) << problem;
  }
}

}  // namespace
}  // namespace trainyard::train::sync_batch_norm_test
