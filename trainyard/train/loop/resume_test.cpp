// A run that is interrupted and goes on from its checkpoint file is the run that was never interrupted, bit for bit:
// with the real input pipeline, in the middle of an epoch, with another number of input threads; and when a signal
// stops it.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/signalled_process.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/callback_conformance.h"
#include "trainyard/train/testing/checkpoint_state.h"

namespace trainyard::train::resume_test {
namespace {

constexpr int64_t kBatch = 8;

class Resume : public ::testing::Test {
 protected:
  const core::TempDir directory_;
  const std::string data_ = directory_.file("shapes");
  const CheckpointIdentity identity_{.model = "small", .dataset = "shapes", .num_classes = 12};

  // 72 samples: with 16 a step, the input's epoch ends after 4.5 steps.
  void SetUp() override { data::write_shapes({.train_count = 72, .validation_count = 12}, data_); }

  std::shared_ptr<data::BatchSource> input(int threads, int replicas) const {
    std::shared_ptr<const data::Dataset> dataset = data::datasets().get("shapes")({.directory = data_});
    std::shared_ptr<const data::Transform> transform = data::transforms().get("shapes")({.height = 32, .width = 32});
    return std::make_shared<data::Pipeline>(dataset, transform,
                                            data::PipelineOptions{.batch_size = 2 * kBatch / replicas,
                                                                  .local_replicas = replicas,
                                                                  .total_replicas = replicas,
                                                                  .height = 32,
                                                                  .width = 32,
                                                                  .worker_threads = threads,
                                                                  .prefetch_batches = threads,
                                                                  .seed = 5});
  }

  static TowerTrainerOptions options(int replicas, const std::string& optimizer = "tf_nesterov") {
    nn::GraphBuilder b({.image = {3, 32, 32}, .name = "small"});
    auto x = b.convolution("conv", b.input(), {.out_channels = 6, .kernel = 3, .padding = nn::Padding::all(1)});
    x = b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x)));
    x = b.dropout("dropout", x, 0.2);
    return {.graph = b.build(b.linear("fc", x, {.out_features = 12})),
            .devices = {.replicas = replicas},
            .threads = {.intra_op_threads = replicas},
            .exchange = {.variable_update = "replicated"},
            .seed = 7,
            .make_optimizer =
                [optimizer](nn::ParameterSet& set) {
                  optim::OptimizerOptions chosen{.weight_decay = 1e-3};
                  if (optimizer != "lookahead") return optim::optimizers().get(optimizer)(set, chosen);
                  chosen.lookahead = {.steps = 3};  // 5 steps end within three
                  return optim::optimizers().get("torch_momentum")(set, chosen);
                },
            .learning_rate = optim::constant(0.05)};
  }
};

// All that the trainer saves is the same: parameters, statistics, optimizer, counters, place in the data.
void expect_same_state(const Trainer& expected, const Trainer& actual) {
  core::MemoryState left, right;
  expected.save(left);
  actual.save(right);
  ASSERT_EQ(left.names(), right.names());
  const core::StateReader &a = left, &b = right;
  int tensors = 0;
  for (const std::string& name : left.names()) {
    try {
      EXPECT_TRUE(at::equal(a.tensor(name), b.tensor(name))) << name;
      ++tensors;
    } catch (const core::Error&) {
      if (name.ends_with("/kind")) {
        EXPECT_EQ(a.text(name), b.text(name)) << name;
      } else {
        EXPECT_EQ(a.integer(name), b.integer(name)) << name;
      }
    }
  }
  EXPECT_GT(tensors, 8);
}

TEST_F(Resume, FiveStepsAndACheckpointAndFiveAreTenBitForBit) {
  const std::vector<std::pair<int, std::string>> runs = {
      {1, "tf_nesterov"}, {2, "tf_nesterov"},       {1, "tf_rmsprop"},
      {2, "tf_adam"},     {1, "torch_nadam"},       {1, "lars"},
      {2, "lamb"},        {2, "muon_sgd"},          {1, "muon_adamw"},
      {2, "lion"},        {1, "schedule_free_sgd"}, {2, "schedule_free_adamw"},
      {2, "lookahead"}};
  for (const auto& [replicas, optimizer] : runs) {
    SCOPED_TRACE(optimizer);
    TowerTrainer straight(options(replicas, optimizer), input(1, replicas));
    straight.train({.steps_per_epoch = 10});

    const std::string run = directory_.file(optimizer + std::to_string(replicas));
    {
      TowerTrainer first(options(replicas, optimizer), input(2, replicas));
      first.add(std::make_shared<CheckpointCallback>(CheckpointStore(run), CheckpointCallbackOptions{identity_}));
      first.train({.steps_per_epoch = 5});
    }
    TowerTrainer second(options(replicas, optimizer), input(3, replicas));
    load_checkpoint(find_checkpoint(run), &identity_, second);
    EXPECT_EQ(second.global_step(), 5);
    second.train({.steps_per_epoch = 10, .starting_step = second.step_in_epoch()});
    expect_same_state(straight, second);
  }
}

// What saving the place in the data is for: without it the second half sees other samples.
TEST_F(Resume, AnInputThatStartsOverGivesAnotherModel) {
  TowerTrainer straight(options(1), input(1, 1));
  straight.train({.steps_per_epoch = 10});
  TowerTrainer first(options(1), input(1, 1)), second(options(1), input(1, 1));
  first.train({.steps_per_epoch = 5});
  const CheckpointInfo saved = CheckpointStore(directory_.file("run")).save(5, identity_, first);
  load_checkpoint(saved, &identity_, second);
  second.source().seek({});
  second.train({.steps_per_epoch = 10, .starting_step = 5});
  EXPECT_FALSE(at::equal(straight.parameters().values(), second.parameters().values()));
}

TEST_F(Resume, ACheckpointOfAnotherNetworkIsExplained) {
  TowerTrainer small(options(1), input(1, 1));
  const CheckpointInfo saved = CheckpointStore(directory_.file("run")).save(0, identity_, small);
  TowerTrainerOptions larger = options(1);
  nn::GraphBuilder b({.image = {3, 32, 32}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 7, .kernel = 3, .padding = nn::Padding::all(1)});
  larger.graph = b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = 12}));
  TowerTrainer other(larger, input(1, 1));
  const auto error = error_of([&] { load_checkpoint(saved, &identity_, other); });
  ASSERT_TRUE(error);
  const std::string message = error->what();
  for (const char* part : {"missing in the checkpoint: ", "model/head", "only in the checkpoint: ", "model/fc",
                           "model/bn", "of another shape or type: ", "[7, 3, 3, 3], saved as float32 [6, 3, 3, 3]"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

// A program that trains until a signal stops it; returns its exit code. Tells `ready` when it has made its third step.
int train_until_stopped(const std::string& run, int ready, std::chrono::milliseconds step_time) {
  try {
    core::StopSource stop;
    const core::SignalWatcher watcher(
        {SIGTERM, SIGINT}, [&](int signal) { stop.request_stop(core::StopReason::kSignal, core::signal_name(signal)); },
        [](int signal) { ::_exit(128 + signal); });
    PretendTrainer trainer;
    trainer.set_stop_token(stop.token());
    trainer.in_step = [&](int64_t step) {
      if (step == 3 && ::write(ready, "x", 1) != 1) ::_exit(1);
      if (step >= 3) std::this_thread::sleep_for(step_time);
    };
    trainer.add(std::make_shared<CheckpointCallback>(CheckpointStore(run), CheckpointCallbackOptions{.save_steps = 2}));
    trainer.train({.steps_per_epoch = 1'000'000});
    return trainer.stop_reason() == "SIGTERM" ? core::kExitStoppedBySignal : 2;
  } catch (const core::Error&) {
    return 3;
  }
}

int exit_code_after(const std::string& run, const std::vector<int>& signals, std::chrono::milliseconds step_time) {
  const int status = core::status_after([&](int ready) { return train_until_stopped(run, ready, step_time); }, signals);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(Resume, ASignalFinishesTheStepAndSaves) {
  const std::string run = directory_.file("run");
  EXPECT_EQ(exit_code_after(run, {SIGTERM}, std::chrono::milliseconds(100)), core::kExitStoppedBySignal);
  PretendTrainer resumed;
  load_checkpoint(find_checkpoint(run), nullptr, resumed);
  // Told in step 3, while the fourth step ran: four steps are done, and maybe one more.
  EXPECT_GE(resumed.global_step(), 4);
  EXPECT_LE(resumed.global_step(), 5);
}

TEST_F(Resume, ASecondSignalEndsAtOnceAndKeepsWhatWasSaved) {
  const std::string run = directory_.file("run");
  EXPECT_EQ(exit_code_after(run, {SIGTERM, SIGINT}, std::chrono::seconds(30)), 128 + SIGINT);
  PretendTrainer resumed;
  load_checkpoint(find_checkpoint(run), nullptr, resumed);
  EXPECT_EQ(resumed.global_step(), 2);
}

}  // namespace
}  // namespace trainyard::train::resume_test
