#include "trainyard/frontends/tensorpack/trainers.h"

#include <cstdio>
#include <optional>
#include <utility>

#include <ATen/ops/full.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/frontends/tensorpack/existing_run.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/parallel/servers/server_options.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/monitors/monitors.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::frontends::trainers_test {
namespace {

const std::vector<std::string> kTwoCpus{"cpu:0", "cpu:1"};

TrainConfig tiny_config(int64_t batch_size = 8, double learning_rate = 0.05) {
  TrainConfig config;
  config.model.graph = train::tiny_graph({.batch_norm = false});
  config.model.seed = 7;
  config.model.threads.intra_op_threads = 2;
  config.model.make_optimizer = [](nn::ParameterSet& set) { return optim::optimizers().get("tf_momentum")(set, {}); };
  config.model.learning_rate = optim::constant(learning_rate);
  config.data = round_robin(train::tiny_source(160, batch_size));
  config.steps_per_epoch = 20;
  config.max_epoch = 1;
  return config;
}

at::Tensor trained(const TrainConfig& config, const TrainerType& type) {
  const std::unique_ptr<train::Trainer> trainer = launch_train_with_config(config, type);
  EXPECT_EQ(trainer->global_step(), config.steps_per_epoch * config.max_epoch);
  return dynamic_cast<train::TowerTrainer&>(*trainer).parameters().values().clone();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

// Trains on two devices of one worker, whose server is a thread of this process.
at::Tensor trained_by_a_server(bool replicated) {
  const auto address = [] { return "127.0.0.1:" + std::to_string(parallel::free_port()); };
  DistributedServer here{.ps_hosts = {address()}, .worker_hosts = {address()}};
  const auto type_of = [&](const std::string& job) -> std::unique_ptr<TrainerType> {
    DistributedServer server = here;
    server.job_name = job;
    if (replicated) return std::make_unique<DistributedTrainerReplicated>(kTwoCpus, server);
    return std::make_unique<DistributedTrainerParameterServer>(kTwoCpus, server);
  };
  int64_t steps_of_server = -1;
  core::Thread server({.name = "server"}, [&] {
    steps_of_server = launch_train_with_config(tiny_config(4), *type_of("ps"))->global_step();
  });
  at::Tensor values = trained(tiny_config(4), *type_of("worker"));
  server.join();
  EXPECT_EQ(steps_of_server, 0) << "a server trains nothing";
  core::log::set_origin("");
  return values;
}

TEST(Trainers, DistributedOnesTrainAsThoseOfOneProcess) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  const at::Tensor here = trained(tiny_config(4), SyncMultiGPUTrainerParameterServer(kTwoCpus));
  for (const bool replicated : {false, true}) {
    EXPECT_EQ(distance(here, trained_by_a_server(replicated)), 0) << replicated;
  }
}

TEST(Trainers, DistributedOnesRefuseWhatIsNoCluster) {
  const DistributedTrainerParameterServer none({"cpu:0"}, {});
  EXPECT_THAT(core::problem_of([&] { launch_train_with_config(tiny_config(), none); }),
              ::testing::HasSubstr("no workers"));
  const DistributedTrainerReplicated gpu({"gpu:0"}, {.ps_hosts = {"a:1"}, .worker_hosts = {"a:2"}});
  EXPECT_THAT(core::message_of([&] { launch_train_with_config(tiny_config(), gpu); }, core::ErrorCode::kUnsupported),
              ::testing::HasSubstr("on GPUs"));
}

TEST(Trainers, TrainAlikeOnOneDeviceAndOnTwo) {
  const at::Tensor one = trained(tiny_config(8), SimpleTrainer());
  EXPECT_EQ(distance(one, trained(tiny_config(8), SyncMultiGPUTrainerParameterServer({"cpu:0"}))), 0);
  EXPECT_EQ(distance(one, trained(tiny_config(8), SyncMultiGPUTrainerReplicated({"cpu:0"}))), 0);
  constexpr double kRounding = 2e-5;
  EXPECT_LT(distance(one, trained(tiny_config(4), SyncMultiGPUTrainerParameterServer(kTwoCpus))), kRounding);
  EXPECT_LT(distance(one, trained(tiny_config(4), SyncMultiGPUTrainerReplicated(kTwoCpus))), kRounding);
  for (const char* mode : {"cpu", "gpu", "hierarchical", "collective"}) {
    EXPECT_LT(distance(one, trained(tiny_config(4), SyncMultiGPUTrainerReplicated(kTwoCpus, {.mode = mode}))),
              kRounding)
        << mode;
  }
  // A sum of two means is twice the mean of both.
  EXPECT_LT(distance(one, trained(tiny_config(4, 0.025), SyncMultiGPUTrainerReplicated(kTwoCpus, {.average = false}))),
            kRounding);
  EXPECT_GT(distance(one, trained(tiny_config(4), SyncMultiGPUTrainerReplicated(kTwoCpus, {.average = false}))), 1e-3);
}

// Results are the same up to rounding: only the trainer's options tell the algorithm.
TEST(Trainers, ReduceGradientsByTheirMode) {
  TrainConfig config = tiny_config(4);
  config.steps_per_epoch = 1;
  const auto options_of = [&](const std::string& mode) {
    const auto trainer = launch_train_with_config(config, SyncMultiGPUTrainerReplicated(kTwoCpus, {.mode = mode}));
    return dynamic_cast<const train::TowerTrainer&>(*trainer).options();
  };
  for (const std::string mode : {"", "cpu"}) {
    const train::TowerTrainerOptions options = options_of(mode);
    EXPECT_FALSE(options.devices.make_gradient_communicators) << mode << ": in the usual way";
    EXPECT_FALSE(options.exchange.packing.separate) << mode;
  }
  for (const std::string mode : {"gpu", "hierarchical"}) {
    const train::TowerTrainerOptions options = options_of(mode);
    EXPECT_TRUE(options.devices.make_gradient_communicators) << mode;
    EXPECT_TRUE(options.exchange.packing.separate) << mode;
  }
}

TEST(Trainers, AnAsynchronousOneTakesAStepOnEachDevice) {
  TrainConfig config = tiny_config(4, 0.02);
  config.max_epoch = 5;
  const auto trainer = launch_train_with_config(config, AsyncMultiGPUTrainer(kTwoCpus));
  const auto before = launch_train_with_config(tiny_config(8, 0), SimpleTrainer());
  EXPECT_EQ(trainer->global_step(), 100);
  EXPECT_LT(dynamic_cast<train::TowerTrainer&>(*trainer).last_base_loss(),
            0.8 * dynamic_cast<train::TowerTrainer&>(*before).last_base_loss());
}

// Returns what a step with a rate of 0.25 makes of w = 1, whose cost is w^2 / 4. All devices compute at 1; the server
// takes one gradient after the other.
double after_a_step(const TrainerType& type, double weight_decay) {
  TrainConfig config;
  config.model.tower = [](train::TowerContext& context) -> train::TowerStep {
    train::TowerParameter& w = context.parameter({"w", {}, nn::Initializer::constant(1), /*decay=*/true});
    return [&w](const train::TowerInput&) -> train::TowerOutput {
      return {.losses = {{"cost", w.value().mul(w.value()).div(4)}}};
    };
  };
  config.model.make_optimizer = [weight_decay](nn::ParameterSet& set) {
    return optim::optimizers().get("sgd")(set, {.weight_decay = weight_decay});
  };
  config.model.learning_rate = optim::constant(0.25);
  config.data = round_robin(std::make_shared<data::FunctionSource>(
      [](const data::BatchPlace&) { return core::NamedTensors(); }, data::FunctionSourceOptions{}));
  config.steps_per_epoch = 1;
  config.max_epoch = 1;
  const auto trainer = launch_train_with_config(config, type);
  const nn::ParameterSet& parameters = dynamic_cast<train::TowerTrainer&>(*trainer).parameters();
  return parameters.value(*parameters.find("w")).item<double>();
}

TEST(Trainers, AnAsynchronousOneScalesGradientsByTheNumberOfDevices) {
  EXPECT_EQ(after_a_step(AsyncMultiGPUTrainer(kTwoCpus), 0), 0.875);
  EXPECT_EQ(after_a_step(AsyncMultiGPUTrainer(kTwoCpus, {.scale_gradient = false}), 0), 0.75);
  EXPECT_EQ(after_a_step(AsyncMultiGPUTrainer({"cpu:0"}), 0), 0.875);
  EXPECT_EQ(after_a_step(SyncMultiGPUTrainerParameterServer(kTwoCpus), 0), 0.875);
  // Decay is a part of the cost: the server adds that of the value that it has to each gradient.
  EXPECT_EQ(after_a_step(AsyncMultiGPUTrainer({"cpu:0"}), 0.5), 0.75);
  const double first = 1 - 0.25 * (0.5 + 0.5) / 2;
  EXPECT_NEAR(after_a_step(AsyncMultiGPUTrainer(kTwoCpus), 0.5), first - 0.25 * (0.5 + 0.5 * first) / 2, 1e-6);
}

// What ends, of the data, ends the training, as Tensorpack's StopTraining and OutOfRangeError do.
TEST(Trainers, AnInputThatEndsStopsATraining) {
  class End : public train::Callback {
   public:
    explicit End(std::vector<std::string>& lines) : lines_(lines) {}
    std::string name() const override { return "end"; }
    void trigger(train::Trainer& trainer) override { lines_.push_back("epoch " + std::to_string(trainer.epoch())); }
    void after_train(train::Trainer& trainer) override {
      lines_.push_back("after " + std::to_string(trainer.global_step()));
    }

   private:
    std::vector<std::string>& lines_;
  };
  const auto finite = [] { return train::tiny_source(40, 8, 1, /*repeat=*/false); };
  const auto lines_of = [](MakeData data, const TrainerType& type) {
    std::vector<std::string> lines;
    TrainConfig config = tiny_config();
    config.data = std::move(data);
    config.steps_per_epoch = 2;
    config.max_epoch = 50;
    config.callbacks = {std::make_shared<End>(lines)};
    const auto trainer = launch_train_with_config(config, type);
    EXPECT_THAT(trainer->stop_reason(), testing::HasSubstr("the input has ended"));
    return lines;
  };
  using testing::ElementsAre;
  const auto of_devices = [](int devices) { return train::tiny_source(40, 8, devices, /*repeat=*/false); };
  EXPECT_THAT(lines_of(of_devices, SimpleTrainer()), ElementsAre("epoch 1", "epoch 2", "after 5"));
  EXPECT_THAT(lines_of(of_devices, SyncMultiGPUTrainerReplicated(kTwoCpus)), ElementsAre("epoch 1", "after 2"));
  EXPECT_THAT(lines_of(of_devices, AsyncMultiGPUTrainer(kTwoCpus)), ElementsAre("epoch 1", "after 2"));
  EXPECT_THAT(lines_of(round_robin(finite(), {.repeat = false}), SimpleTrainer()),
              ElementsAre("epoch 1", "epoch 2", "after 5"));
  EXPECT_THAT(lines_of(round_robin(finite(), {.repeat = false}), SyncMultiGPUTrainerReplicated(kTwoCpus)),
              ElementsAre("epoch 1", "after 2"));
  TrainConfig config = tiny_config();
  config.data = round_robin(finite());
  EXPECT_EQ(launch_train_with_config(config, SimpleTrainer())->global_step(), 20) << "dealt again and again";
}

// Each of them would train alone, and write over the others' files.
TEST(Trainers, AreOfOneProcessWhereTheyDoNotMeetOthers) {
  const core::EnvironmentVariable size("SLURM_STEP_NUM_TASKS", "2"), step("SLURM_STEP_ID", "0");
  const std::string refused = "2 processes were started, and each would train alone";
  EXPECT_EQ(core::problem_of([] { launch_train_with_config(tiny_config(), SimpleTrainer()); }), refused);
  EXPECT_EQ(core::problem_of([] { launch_train_with_config(tiny_config(), SyncMultiGPUTrainerReplicated(kTwoCpus)); }),
            refused);
  EXPECT_EQ(core::problem_of([] { program::Executor executor({"cpu:0"}); }), refused);
  const core::EnvironmentVariable separate(parallel::kSeparateProcessesVariable, "1");
  TrainConfig config = tiny_config();
  config.max_epoch = 1;
  EXPECT_EQ(launch_train_with_config(config, SimpleTrainer())->epoch(), 1) << "each has a job of its own";
}

// What it asks its processes for is seen in why there are none: neither mpirun nor torchrun has started this one.
TEST(HorovodTrainer, MeetsTheOthersByItsDevice) {
  const core::EnvironmentVariable size("OMPI_COMM_WORLD_SIZE", std::nullopt), rank("PMIX_RANK", std::nullopt);
  const core::EnvironmentVariable world("WORLD_SIZE", std::nullopt);
  const auto refusal = [](const HorovodTrainer& trainer) {
    return std::string(core::thrown_by([&] { static_cast<void>(trainer.make(tiny_config())); }).what());
  };
  EXPECT_THAT(refusal(HorovodTrainer("cpu")),
              ::testing::AnyOf(::testing::StartsWith("no launcher of MPI has started this process"),
                               ::testing::HasSubstr("MPI is not built in")));
  EXPECT_THAT(refusal(HorovodTrainer("gpu")), ::testing::StartsWith("the variable WORLD_SIZE is not set"));
  EXPECT_THAT(refusal(HorovodTrainer("gpu", {.compression = "fp16"})),
              ::testing::StartsWith("--horovod_compression is for CPUs"));
  HorovodTrainer("cpu").leave();  // what it has not joined
}

TEST(Trainers, SayWhatTheyCannotDo) {
  EXPECT_EQ(core::message_of([] { launch_train_with_config(tiny_config(), HorovodTrainer("cpu:0")); },
                             core::ErrorCode::kInvalidArgument),
            "no such device of a process: expected cpu or gpu, got cpu:0");
  const SyncMultiGPUTrainerReplicated nccl(kTwoCpus, {.mode = "nccl"});
  EXPECT_EQ(core::message_of([&] { launch_train_with_config(tiny_config(), nccl); }, core::ErrorCode::kUnsupported),
            "gradients are not exchanged in this mode on these devices: [cpu:0, cpu:1]: expected cpu, gpu, "
            "hierarchical or collective, got nccl; leave the mode out: the result is the same up to rounding");
  for (const char* mode : {"cpu", "gpu", "hierarchical"}) {
    const SyncMultiGPUTrainerReplicated on_gpus({"gpu:0", "gpu:1"}, {.mode = mode});
    EXPECT_THAT(
        core::message_of([&] { launch_train_with_config(tiny_config(), on_gpus); }, core::ErrorCode::kUnsupported),
        testing::HasSubstr("expected nccl or collective"));
  }
  const HorovodTrainer compressed("cpu", {.compression = "int8"});
  EXPECT_EQ(core::problem_of([&] { launch_train_with_config(tiny_config(), compressed); }),
            "no such compression of gradients");
  const SyncMultiGPUTrainerReplicated unknown(kTwoCpus, {.mode = "mpi"});
  EXPECT_EQ(core::problem_of([&] { launch_train_with_config(tiny_config(), unknown); }),
            "no such mode of exchanging gradients");
  EXPECT_EQ(core::problem_of([] { launch_train_with_config(tiny_config(), SimpleTrainer("tpu:0")); }),
            "this is no name of a device");
  TrainConfig config = tiny_config();
  config.data = {};
  EXPECT_EQ(core::problem_of([&] { launch_train_with_config(config, SimpleTrainer()); }),
            "a training with a model needs data");
  config = tiny_config();
  config.model.devices.replicas = 2;
  EXPECT_EQ(core::problem_of([&] { launch_train_with_config(config, SimpleTrainer()); }),
            "the model says something of devices, which is the trainer's affair");
  config = tiny_config();
  config.weights = config.checkpoint = "here";
  EXPECT_EQ(core::problem_of([&] { config.validate(); }),
            "a training begins from weights or from a checkpoint, not from both");
  EXPECT_EQ(core::problem_of([&] { launch_train_with_config(config, SimpleTrainer()); }),
            "a training begins from weights or from a checkpoint, not from both");
  config = tiny_config();
  config.callbacks = {nullptr};
  EXPECT_EQ(core::problem_of([&] { config.validate(); }), "a callback is null");
}

// Writes down what the loop says of itself.
class Log : public train::Callback {
 public:
  explicit Log(std::vector<std::string>& lines, std::string name = "log") : lines_(lines), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  void before_epoch(train::Trainer& trainer) override {
    lines_.push_back(name_ + ": epoch " + std::to_string(trainer.epoch()) + " from step " +
                     std::to_string(trainer.global_step()));
  }

 private:
  std::vector<std::string>& lines_;
  std::string name_;
};

TEST(Trainers, OneThatDoesNothingRunsCallbacks) {
  std::vector<std::string> lines;
  TrainConfig config;
  config.callbacks = {std::make_shared<Log>(lines)};
  config.extra_callbacks = [&] {
    return std::vector<std::shared_ptr<train::Callback>>{std::make_shared<Log>(lines, "extra")};
  };
  config.starting_epoch = 3;
  config.max_epoch = 4;
  EXPECT_EQ(core::problem_of([&] { launch_train_with_config(config, NoOpTrainer()); }),
            "the data do not say how many batches they have in an epoch");
  config.steps_per_epoch = 5;
  EXPECT_EQ(launch_train_with_config(config, NoOpTrainer())->global_step(), 10);
  EXPECT_THAT(lines, testing::ElementsAre("log: epoch 3 from step 0", "extra: epoch 3 from step 0",
                                          "log: epoch 4 from step 5", "extra: epoch 4 from step 5"));
}

TEST(TrainConfig, CountsTheStepsOfAnEpochByTheData) {
  TrainConfig config = tiny_config();
  config.model.graph = {};
  config.model.tower = [](train::TowerContext& context) -> train::TowerStep {
    train::TowerParameter& w = context.parameter({"w", {}, nn::Initializer::constant(1)});
    return [&w](const train::TowerInput& in) -> train::TowerOutput {
      return {.losses = {{"cost", w.value().mul(in.batch["x"]).sum()}}};
    };
  };
  config.steps_per_epoch = 0;
  config.max_epoch = 2;
  config.data = round_robin(std::make_shared<data::FunctionSource>(
      [](const data::BatchPlace&) -> core::NamedTensors {
        return {{"x", at::full({1}, 1.0F)}};
      },
      data::FunctionSourceOptions{.batches_per_epoch = 7}));
  EXPECT_EQ(launch_train_with_config(config, SimpleTrainer())->global_step(), 14);
  EXPECT_EQ(launch_train_with_config(config, SyncMultiGPUTrainerReplicated(kTwoCpus))->global_step(), 14)
      << "whatever the number of devices";
  config.data = round_robin(std::make_shared<data::FunctionSource>(
      [](const data::BatchPlace&) { return core::NamedTensors(); }, data::FunctionSourceOptions{}));
  EXPECT_EQ(core::message_of([&] { launch_train_with_config(config, SimpleTrainer()); }),
            "the data do not say how many batches they have in an epoch: TrainConfig::steps_per_epoch; set it to the "
            "number of steps");
}

TEST(TrainConfig, BeginsWithWeights) {
  const core::TempDir directory;
  const auto first = launch_train_with_config(tiny_config(), SimpleTrainer());
  const nn::ParameterSet& parameters = dynamic_cast<train::TowerTrainer&>(*first).parameters();
  train::save_weights(directory.file("weights.safetensors"), parameters);
  TrainConfig config = tiny_config(8, 0);
  config.weights = directory.file("weights.safetensors");
  for (const bool replicated : {false, true}) {
    const at::Tensor values =
        replicated ? trained(config, SyncMultiGPUTrainerReplicated(kTwoCpus)) : trained(config, SimpleTrainer());
    EXPECT_TRUE(values.equal(parameters.values())) << replicated;
  }
}

// Saves a checkpoint at the end, as callbacks do.
TrainConfig saving_config(const std::string& directory, int64_t max_epoch) {
  TrainConfig config = tiny_config();
  config.steps_per_epoch = 5;
  config.max_epoch = max_epoch;
  config.run_directory = directory;
  config.callbacks = {std::make_shared<train::CheckpointCallback>(train::CheckpointStore(directory),
                                                                  train::CheckpointCallbackOptions{})};
  return config;
}

void write_stats(const std::string& directory, const std::string& text) {
  core::local_file_system().write_file_atomically(core::join_path(directory, "stats.json"), text);
}

TEST(TrainConfig, GoesOnFromACheckpointWithTheBitsOfAStraightRun) {
  const core::TempDir directory, straight;
  const at::Tensor expected = trained(saving_config(straight.path(), 4), SyncMultiGPUTrainerReplicated(kTwoCpus));
  launch_train_with_config(saving_config(directory.path(), 2), SyncMultiGPUTrainerReplicated(kTwoCpus));
  std::vector<std::string> lines;
  TrainConfig config = saving_config(directory.path(), 4);
  config.callbacks.push_back(std::make_shared<Log>(lines));
  const AutoResumeTrainConfig resumed(config);
  EXPECT_EQ(trained(resumed, SyncMultiGPUTrainerReplicated(kTwoCpus)).equal(expected), true);
  EXPECT_THAT(lines, testing::ElementsAre("log: epoch 3 from step 10", "log: epoch 4 from step 15"));
}

TEST(AutoResumeTrainConfig, SaysWhoWins) {
  const core::TempDir directory;
  TrainConfig given = saving_config(directory.path(), 9);
  EXPECT_EQ(AutoResumeTrainConfig(given).starting_epoch, 1) << "nothing is found";
  EXPECT_EQ(AutoResumeTrainConfig(given).checkpoint, "");
  launch_train_with_config(saving_config(directory.path(), 2), SimpleTrainer());
  const std::string found = directory.file("model.ckpt-10");
  given.weights = "of_mine.safetensors";
  given.starting_epoch = 7;
  const AutoResumeTrainConfig always(given), careful(given, false);
  EXPECT_EQ(always.checkpoint, found);
  EXPECT_EQ(always.weights, "");
  EXPECT_EQ(always.starting_epoch, 3);
  EXPECT_EQ(careful.checkpoint, "");
  EXPECT_EQ(careful.weights, "of_mine.safetensors");
  EXPECT_EQ(careful.starting_epoch, 7);
  given.weights.clear();
  given.starting_epoch = 1;
  EXPECT_EQ(AutoResumeTrainConfig(given, false).checkpoint, found);
  EXPECT_EQ(AutoResumeTrainConfig(given, false).starting_epoch, 3);
  given.weights = "of_mine.safetensors";
  EXPECT_EQ(AutoResumeTrainConfig(given, false).starting_epoch, 1) << "the epoch of a checkpoint that is not used";
  given.weights.clear();

  write_stats(directory.path(), "[]");
  EXPECT_EQ(AutoResumeTrainConfig(given).starting_epoch, 1);
  write_stats(directory.path(), R"([{"epoch_num":2}])");
  EXPECT_EQ(core::code_of([&] { const AutoResumeTrainConfig damaged(given); }), core::ErrorCode::kCorruptData);
  given.run_directory.clear();
  EXPECT_EQ(core::problem_of([&] { const AutoResumeTrainConfig nowhere(given); }), "there is no run to go on with");
}

TEST(AutoResumeTrainConfig, TakesTheEpochOfTheCheckpoint) {
  const core::TempDir directory;
  const TrainConfig given = saving_config(directory.path(), 9);
  launch_train_with_config(saving_config(directory.path(), 2), SimpleTrainer());
  write_stats(directory.path(), R"([{"epoch_num":1,"global_step":5},{"epoch_num":2,"global_step":10},)"
                                R"({"epoch_num":3,"global_step":15}])");
  EXPECT_EQ(AutoResumeTrainConfig(given).starting_epoch, 3) << "an epoch has ended after the checkpoint";
  write_stats(directory.path(), R"([{"epoch_num":1,"global_step":8},{"epoch_num":2,"global_step":16}])");
  EXPECT_EQ(AutoResumeTrainConfig(given).starting_epoch, 2) << "the checkpoint is of the middle of an epoch";

  write_stats(directory.path(), R"([{"epoch_num":1,"global_step":15}])");
  testing::internal::CaptureStderr();
  const AutoResumeTrainConfig in_the_first(given);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("no epoch that had ended at step 10"));
  EXPECT_EQ(in_the_first.starting_epoch, 1);
  EXPECT_EQ(in_the_first.checkpoint, directory.file("model.ckpt-10"));

  core::local_file_system().remove_tree(directory.file("model.ckpt-10"));
  testing::internal::CaptureStderr();
  const AutoResumeTrainConfig unsaved(given);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("there is no checkpoint to resume from"));
  EXPECT_EQ(unsaved.starting_epoch, 1);
  EXPECT_EQ(unsaved.checkpoint, "");
}

// A run that is killed when its checkpoint is there, and the statistics of the epoch are not.
TEST(AutoResumeTrainConfig, CountsTheEpochThatEndedWithTheCheckpoint) {
  const core::TempDir directory, straight, first, within;
  const at::Tensor expected = trained(saving_config(straight.path(), 4), SimpleTrainer());
  launch_train_with_config(saving_config(directory.path(), 2), SimpleTrainer());
  write_stats(directory.path(), R"([{"epoch_num":1,"global_step":5}])");
  const AutoResumeTrainConfig resumed(saving_config(directory.path(), 4));
  EXPECT_EQ(resumed.starting_epoch, 3);
  EXPECT_TRUE(trained(resumed, SimpleTrainer()).equal(expected));
  EXPECT_EQ(AutoResumeTrainConfig(saving_config(directory.path(), 9)).starting_epoch, 5);

  launch_train_with_config(saving_config(first.path(), 1), SimpleTrainer());
  core::local_file_system().remove_file(first.file("stats.json"));
  EXPECT_EQ(AutoResumeTrainConfig(saving_config(first.path(), 4)).starting_epoch, 2) << "not one epoch has statistics";

  TrainConfig config = saving_config(within.path(), 1);
  config.callbacks = {std::make_shared<train::CheckpointCallback>(
      train::CheckpointStore(within.path()), train::CheckpointCallbackOptions{.save_steps = 3, .save_at_end = false})};
  launch_train_with_config(config, SimpleTrainer());
  core::local_file_system().remove_file(within.file("stats.json"));
  EXPECT_EQ(AutoResumeTrainConfig(saving_config(within.path(), 4)).starting_epoch, 1) << "the epoch had not ended";
}

// Nobody can be asked as long as it lives, wherever the test runs.
class NoTerminal {
 public:
  NoTerminal() {
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(nothing, STDIN_FILENO);
    ::close(nothing);
  }
  ~NoTerminal() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  NoTerminal(const NoTerminal&) = delete;
  NoTerminal& operator=(const NoTerminal&) = delete;

 private:
  int before_ = ::dup(STDIN_FILENO);
};

TEST(TrainConfig, OverwritesNoRunUnasked) {
  const NoTerminal no_terminal;
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string run = directory.file("run");
  const auto steps_after = [&](const std::string& existing, int64_t max_epoch) {
    TrainConfig config = saving_config(run, max_epoch);
    config.existing_run = existing;
    return launch_train_with_config(config, SimpleTrainer())->global_step();
  };
  EXPECT_EQ(steps_after("ask", 2), 10) << "there is none yet";
  const std::string metrics = files.read_file(core::join_path(run, "metrics.jsonl"));
  const std::string stats = files.read_file(core::join_path(run, "stats.json"));
  EXPECT_EQ(core::problem_of([&] { steps_after("ask", 1); }),
            "the run directory holds a run, which this training would overwrite");
  EXPECT_EQ(core::problem_of([&] { steps_after("new_name", 1); }),
            "callbacks that save would not know the run's new name");
  EXPECT_EQ(core::problem_of([&] { steps_after("overwrite", 1); }), "no such thing can be done with an existing run");
  EXPECT_EQ(files.read_file(core::join_path(run, "metrics.jsonl")), metrics);
  EXPECT_EQ(files.read_file(core::join_path(run, "stats.json")), stats);
  EXPECT_TRUE(files.exists(core::join_path(run, "model.ckpt-10")));

  TrainConfig unsaved = saving_config(run, 1);
  unsaved.callbacks.clear();
  unsaved.existing_run = "new_name";
  EXPECT_EQ(launch_train_with_config(unsaved, SimpleTrainer())->global_step(), 5);
  EXPECT_EQ(train::read_stats_end(directory.file("run-2/stats.json"))->epoch_num, 1);
  EXPECT_EQ(files.read_file(core::join_path(run, "metrics.jsonl")), metrics);

  EXPECT_EQ(steps_after("back_up", 1), 5);
  std::vector<std::string> names = files.list(directory.path());
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("run.backup-"); });
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(files.read_file(core::join_path(directory.file(names[0]), "stats.json")), stats);
  EXPECT_EQ(steps_after("keep", 3), 15) << "epochs 2 and 3 are continued with";
  EXPECT_EQ(train::read_stats_end(core::join_path(run, "stats.json"))->epoch_num, 3);

  TrainConfig from_checkpoint = saving_config(run, 2);
  from_checkpoint.checkpoint = core::join_path(run, "model.ckpt-5");
  from_checkpoint.starting_epoch = 2;
  EXPECT_EQ(launch_train_with_config(from_checkpoint, SimpleTrainer())->global_step(), 10) << "it continues the run";
  EXPECT_EQ(steps_after("delete", 1), 5);
  EXPECT_EQ(train::CheckpointStore(run).list().size(), 1U);
}

TEST(TrainConfig, HasMonitorsAndASummaryOfEachEpoch) {
  const core::TempDir directory;
  TrainConfig config = tiny_config();
  config.steps_per_epoch = 5;
  config.max_epoch = 3;
  config.run_directory = directory.file("run");
  const auto trainer = launch_train_with_config(config, SyncMultiGPUTrainerReplicated(kTwoCpus));
  const auto& history = trainer->monitors().history("total_loss");
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history[2].second, dynamic_cast<train::TowerTrainer&>(*trainer).last_total_loss());
  EXPECT_EQ(trainer->monitors().latest("learning_rate"), 0.05);
  EXPECT_EQ(trainer->monitors().history("total_loss/moving_average").size(), 3U);
  EXPECT_TRUE(core::local_file_system().exists(core::join_path(config.run_directory, "metrics.jsonl")));
  EXPECT_EQ(core::local_file_system().list(config.run_directory).size(), 3U) << "stats.json, events";

  config.run_directory = directory.file("none");
  int64_t start = -1;
  config.monitors = [&](int64_t step) {
    start = step;
    return std::vector<std::unique_ptr<train::Monitor>>();
  };
  launch_train_with_config(config, SimpleTrainer());
  EXPECT_EQ(start, 0);
  EXPECT_FALSE(core::local_file_system().exists(config.run_directory));
}

// Sums up how long steps take.
struct Clock : train::Callback {
  std::string name() const override { return "clock"; }
  void after_step(train::Trainer&, const train::StepView& view) override { seconds += view.times.total; }
  double seconds = 0;
};

TEST(TrainConfig, ImagesOfAllDevicesAreCounted) {
  const core::TempDir directory;
  TrainConfig config = tiny_config(4);
  config.run_directory = directory.file("run");
  const auto clock = std::make_shared<Clock>();
  config.callbacks = {clock};
  const auto trainer = launch_train_with_config(config, SyncMultiGPUTrainerReplicated(kTwoCpus));
  constexpr double kImages = 20 * 2 * 4;
  EXPECT_NEAR(trainer->monitors().latest("images_per_second").value_or(0) * clock->seconds, kImages, 1e-6);
}

TEST(TrainConfig, WeightsOfOtherClassesGiveAllButTheHead) {
  const core::TempDir directory;
  const auto first = launch_train_with_config(tiny_config(), SimpleTrainer());
  const nn::ParameterSet& saved = dynamic_cast<train::TowerTrainer&>(*first).parameters();
  train::save_weights(directory.file("weights.safetensors"), saved);
  constexpr int64_t kClasses = train::kTinyClasses + 2;
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "tiny"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", x));
  TrainConfig config = tiny_config(8, 0);
  config.model.graph = b.build(b.linear("fc", x, {.out_features = kClasses}));
  config.weights = directory.file("weights.safetensors");
  ::testing::internal::CaptureStderr();
  const auto trainer = launch_train_with_config(config, SimpleTrainer());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              testing::HasSubstr("weights.safetensors is for 6 classes: the head is new, for 8 ("));
  const nn::ParameterSet& set = dynamic_cast<train::TowerTrainer&>(*trainer).parameters();
  EXPECT_TRUE(set.value(*set.find("conv.weight")).equal(saved.value(*saved.find("conv.weight"))));
  EXPECT_EQ(set.value(*set.find("fc.weight")).size(0), kClasses);
}

// Directories of callbacks that save do not change with the run's.
TEST(TrainConfig, ARunThatCallbacksSaveIntoKeepsItsName) {
  const core::TempDir directory;
  const std::string run = directory.file("run");
  core::local_file_system().make_directories(run);
  core::local_file_system().write_file_atomically(core::join_path(run, "metrics.jsonl"), "{}\n");
  std::vector<std::string> lines;
  const auto config_with = [&](const std::string& callback) {
    TrainConfig config;
    config.run_directory = run;
    config.existing_run = "new_name";
    config.callbacks = {std::make_shared<Log>(lines), std::make_shared<Log>(lines, callback)};
    return config;
  };
  const auto problem = [](const TrainConfig& config) {
    return core::problem_of([&] { static_cast<void>(settle_run(config, nullptr)); });
  };
  for (const char* const name : {"checkpoint", "model_saver", "min_saver_loss", "max_saver_top_1"}) {
    EXPECT_EQ(problem(config_with(name)), "callbacks that save would not know the run's new name") << name;
  }
  TrainConfig more = config_with("another");
  more.extra_callbacks = [] { return std::vector<std::shared_ptr<train::Callback>>(); };
  EXPECT_EQ(problem(more), "callbacks that save would not know the run's new name") << "they may save, too";
  TrainConfig continued = config_with("checkpoint");
  for (const std::string& checkpoint : {run, core::join_path(run, "model.ckpt-5")}) {
    continued.checkpoint = checkpoint;
    EXPECT_EQ(settle_run(continued, nullptr).run_directory, run) << "it is the run that continues";
  }
  continued.checkpoint = directory.file("other/model.ckpt-5");
  EXPECT_EQ(problem(continued), "callbacks that save would not know the run's new name");
  EXPECT_EQ(settle_run(config_with("saver"), nullptr).run_directory, directory.file("run-2"));
}

// A terminal in the place of standard input and output, on which a key is typed.
class TypedKey {
 public:
  explicit TypedKey(char key) {
    std::fflush(stdout);
    int inner = -1;
    EXPECT_EQ(::openpty(&outer_, &inner, nullptr, nullptr, nullptr), 0);
    termios as_it_comes{};
    ::tcgetattr(inner, &as_it_comes);
    as_it_comes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(inner, TCSANOW, &as_it_comes);
    ::dup2(inner, STDIN_FILENO);
    ::dup2(inner, STDOUT_FILENO);
    ::close(inner);
    EXPECT_EQ(::write(outer_, &key, 1), 1);
  }
  ~TypedKey() {
    restore();
    ::close(outer_);
  }
  TypedKey(const TypedKey&) = delete;
  TypedKey& operator=(const TypedKey&) = delete;

  // Returns what was shown on it, which is no terminal of this process any longer.
  std::string shown() {
    std::fflush(stdout);
    std::string text(4096, ' ');
    const ssize_t size = ::read(outer_, text.data(), text.size());
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    restore();
    return text;
  }

 private:
  void restore() {
    if (input_ < 0) return;
    std::fflush(stdout);
    ::dup2(input_, STDIN_FILENO);
    ::dup2(output_, STDOUT_FILENO);
    ::close(std::exchange(input_, -1));
    ::close(output_);
  }

  int input_ = ::dup(STDIN_FILENO), output_ = ::dup(STDOUT_FILENO), outer_ = -1;
};

// A new name is offered where no callback would save under the old one.
TEST(TrainConfig, OnATerminalItAsksWhatBecomesOfARun) {
  const core::TempDir directory;
  const std::string run = directory.file("run");
  core::local_file_system().make_directories(run);
  core::local_file_system().write_file_atomically(core::join_path(run, "metrics.jsonl"), "{}\n");
  std::vector<std::string> lines;
  TrainConfig config;
  config.run_directory = run;
  {
    TypedKey key('n');
    const std::string settled = settle_run(config, nullptr).run_directory;
    const std::string shown = key.shown();
    EXPECT_EQ(settled, directory.file("run-2"));
    EXPECT_THAT(shown, ::testing::HasSubstr("(d)elete it, (n)ew name, (q)uit? n"));
  }
  config.callbacks = {std::make_shared<Log>(lines, "checkpoint")};
  {
    TypedKey key('q');
    const std::optional<core::ErrorCode> code = core::code_of([&] { static_cast<void>(settle_run(config, nullptr)); });
    const std::string shown = key.shown();
    EXPECT_EQ(code, core::ErrorCode::kCancelled);
    EXPECT_THAT(shown, ::testing::HasSubstr("(d)elete it, (q)uit? q"));
  }
}

// What each process does that mpirun has started (tests/processes/ranks_test.py): its part of what two devices of one
// process do, bit for bit.
void train_with_the_others(const std::string& directory) {
  const auto with_a_thread_each = [](int devices) {
    TrainConfig config = tiny_config(4);
    config.model.threads.intra_op_threads = devices;
    config.model.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;  // what is measured may change bits
    return config;
  };
  TrainConfig config = with_a_thread_each(1);
  config.run_directory = core::join_path(directory, "run");
  config.callbacks.push_back(std::make_shared<train::CheckpointCallback>(train::CheckpointStore(directory),
                                                                         train::CheckpointCallbackOptions{}));
  const auto clock = std::make_shared<Clock>();
  config.callbacks.push_back(clock);
  const std::unique_ptr<train::Trainer> trainer = launch_train_with_config(config, HorovodTrainer());
  EXPECT_EQ(trainer->global_step(), 20);
  if (trainer->is_chief()) {
    constexpr double kImages = 20 * 2 * 4;  // of all processes
    EXPECT_NEAR(trainer->monitors().latest("images_per_second").value_or(0) * clock->seconds, kImages, 1e-6);
  }
  const at::Tensor values = dynamic_cast<train::TowerTrainer&>(*trainer).parameters().values();
  EXPECT_EQ(distance(values, trained(with_a_thread_each(2), SyncMultiGPUTrainerReplicated(kTwoCpus))), 0);
  std::printf("SAYS %s\n", trainer->is_chief() ? "chief" : "another");
}
// The sum at half the rate is the mean, and gradients that travel as 16-bit numbers differ from it by their rounding.
void train_compressed_with_the_others(const std::string& /*directory*/) {
  const auto trainer =
      launch_train_with_config(tiny_config(4, 0.025), HorovodTrainer("cpu", {.average = false, .compression = "fp16"}));
  // Processes that have met may train by themselves afterwards.
  const at::Tensor mean = trained(tiny_config(4), SyncMultiGPUTrainerReplicated(kTwoCpus));
  const double rounding = distance(dynamic_cast<train::TowerTrainer&>(*trainer).parameters().values(), mean);
  EXPECT_GT(rounding, 0);
  EXPECT_LT(rounding, 5e-3);
  std::printf("SAYS %s\n", trainer->is_chief() ? "chief" : "another");
}
const bool kTrainsCompressedWithTheOthers = core::add_helper_task(
    "TRAINYARD_HOROVOD_COMPRESSION_TASK", "HorovodCompressionTask.InAProcess", train_compressed_with_the_others);
const bool kTrainsWithTheOthers =
    core::add_helper_task("TRAINYARD_HOROVOD_TRAINER_TASK", "HorovodTrainerTask.InAProcess", train_with_the_others);

}  // namespace
}  // namespace trainyard::frontends::trainers_test
