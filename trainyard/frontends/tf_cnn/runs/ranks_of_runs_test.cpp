// Whole runs of two processes, which are threads here: what they print, return and save together.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/seconds_of.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/frontends/testing/stopping_text.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/parallel/testing/server_cluster.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends::ranks_of_runs_test {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<parallel::ProcessGroup>;

// The loss of a batch is its number, from 0 on, and 10 more for each replica in front of its own.
class Numbered : public BenchmarkModel {
 public:
  std::string name() const override { return "numbered"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 4, 4}}, {"labels", {}}}; }
  core::NamedTensors get_synthetic_inputs(const SyntheticBatch& wanted) const override {
    return {{"images", at::zeros({wanted.batch_size, 3, 4, 4})},
            {"labels", at::full({wanted.batch_size}, wanted.batch + 10 * wanted.replica, at::kLong)}};
  }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = 2}));
  }
  train::LossFunction loss_function() const override {
    return [](const at::Tensor& output, const at::Tensor& labels) {
      return labels.to(at::kFloat).mean() + 0 * output.mean();
    };
  }
};

// Three steps of two images, of which the first two are shown.
TfCnnOptions three_steps() {
  TfCnnOptions options;
  options.device.gpu = false;
  options.device.deterministic = true;
  options.batch_size = 2;
  options.num_classes = 2;
  options.steps.num_batches = 3;
  options.steps.num_warmup_batches = 0;
  options.display.display_every = 2;
  options.learning_rate.init_learning_rate = 0.01;
  options.update.weight_decay = 0;
  return options;
}

struct OfRank {
  std::string lines;  // without speeds
  RunStatistics statistics;
};

using Connect = std::function<void(PreparedRun& run, int rank)>;

// Returns what lets two processes exchange gradients, in one session over both.
Connect one_session() {
  return [transports = parallel::make_memory_transports(2)](PreparedRun& run, int rank) {
    run.options.device.variable_update = "distributed_all_reduce";
    run.device.exchange =
        parallel::ProcessEngine::start(transports.at(static_cast<size_t>(rank)), std::chrono::seconds(60));
    run.device.choose_communicators();
  };
}

// Trains on two ranks. `connect` lets the processes of a run exchange gradients.
std::array<OfRank, 2> train_on_both(const TfCnnOptions& options, const Connect& connect,
                                    const std::shared_ptr<BenchmarkModel>& model = std::make_shared<Numbered>()) {
  std::array<PreparedRun, 2> runs = {prepare(options, {.model = model}), prepare(options, {.model = model})};
  std::array<OfRank, 2> results;
  parallel::on_ranks(2, [&](const Group& group) {
    const auto rank = static_cast<size_t>(group->rank());
    PreparedRun& run = runs.at(rank);
    run.device.processes = group;
    connect(run, group->rank());
    std::ostringstream out;
    const core::StopSource stop;
    results.at(rank).statistics = run_training(run, out, stop.token());
    results.at(rank).lines = std::regex_replace(out.str(), std::regex("images/sec: [^\\t\\n]*"), "images/sec");
    if (run.device.servers != nullptr) run.device.servers->leave();
  });
  return results;
}

// As tf_cnn_benchmarks' one session over all workers: the images of a step and the mean of the losses are those of all.
TEST(RanksOfRuns, OfDistributedAllReduceShowTheMeanOfAllLosses) {
  const std::array<OfRank, 2> results = train_on_both(three_steps(), one_session());
  EXPECT_THAT(results[0].lines, HasSubstr("\n1\timages/sec\t5.000\n2\timages/sec\t6.000\n"));
  const RunStatistics& chief = results[0].statistics;
  EXPECT_EQ(chief.num_workers, 2);
  EXPECT_EQ(chief.num_steps, 2 * 3);
  EXPECT_EQ(results[1].statistics.num_steps, 2 * 3);
  EXPECT_EQ(results[1].statistics.num_workers, 2);
  EXPECT_NEAR(chief.average_wall_time * chief.images_per_sec, 2 * 2, 1e-9) << "the images of both";
  EXPECT_EQ(chief.last_average_loss, 7.0) << "of the last step, which is not shown";
}

// Behind a warm-up of a step, and with summaries whose steps no flag names: the means are those of the steps that are
// shown, which are counted from the warm-up on.
TEST(RanksOfRuns, OfDistributedAllReduceShowTheMeansOfTimedSteps) {
  TfCnnOptions options = three_steps();
  options.steps.num_warmup_batches = 1;
  options.steps.num_batches = 5;
  options.display.display_every = 4;
  options.display.summary_verbosity = 1;
  for (const std::optional<int64_t> every : {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
    options.display.save_summaries_steps = every;
    const std::array<OfRank, 2> results = train_on_both(options, one_session());
    EXPECT_THAT(results[0].lines, HasSubstr("\n1\timages/sec\t6.000\n4\timages/sec\t9.000\n"));
    EXPECT_EQ(results[0].statistics.last_average_loss, 10.0) << "of the last step";
  }
}

// All images are equal, and each has another one of the eight classes: one is right, and five are among the best five.
class EachClass : public Numbered {
 public:
  std::string name() const override { return "each_class"; }
  core::NamedTensors get_synthetic_inputs(const SyntheticBatch& wanted) const override {
    return {{"images", at::full({wanted.batch_size, 3, 4, 4}, 0.5)},
            {"labels", at::arange(wanted.batch_size, at::kLong)}};
  }
  nn::Graph build_network(const models::ModelOptions& options) const override {
    nn::GraphBuilder b({.image = options.image_shape(), .name = name()});
    return b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = 8}));
  }
};

TEST(RanksOfRuns, OfDistributedAllReduceShowTheMeanOfAllAccuracies) {
  TfCnnOptions options = three_steps();
  options.batch_size = 8;
  options.num_classes = 8;
  options.display.print_training_accuracy = true;
  const std::array<OfRank, 2> results = train_on_both(options, one_session(), std::make_shared<EachClass>());
  const std::string numbers = "\timages/sec\t3.500\t0.125\t0.625\n";
  EXPECT_THAT(results[0].lines, HasSubstr("\n1" + numbers + "2" + numbers));
}

// A step of both workers is two of the global step there, and one in `trainyard train`.
TEST(RanksOfRuns, OfParameterServersCountTheStepsOfAllWorkers) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  for (const Dialect dialect : {Dialect::kTfCnnBenchmarks, Dialect::kTrainyard}) {
    const core::TempDir temp;
    TfCnnOptions options = three_steps();
    options.dialect = dialect;
    options.saving.train_dir = temp.file("run");
    options.saving.keep_best = "none";
    const parallel::ParameterServer::MakeOptimizers make{make_optimizer(options)};
    parallel::ServerCluster cluster({.workers = 2}, make);
    train_on_both(options, [&](PreparedRun& run, int rank) { run.device.servers = cluster.join(rank); });
    cluster.wait();
    const int64_t steps = train::find_checkpoint(temp.file("run")).global_step;
    EXPECT_EQ(steps, dialect == Dialect::kTfCnnBenchmarks ? 2 * 3 : 3);
  }
}

// The time begins when all have warmed up, and ends with the steps of all.
TEST(RanksOfRuns, OfParameterServersAtTheirOwnPaceWaitForTheWarmupOfAll) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  TfCnnOptions options = three_steps();
  options.steps.num_warmup_batches = 1;
  const parallel::ParameterServer::MakeOptimizers make{make_optimizer(options)};
  parallel::ServerCluster cluster({.workers = 2, .mode = parallel::ServerMode::kAsynchronous}, make);
  const std::array<OfRank, 2> results = train_on_both(options, [&](PreparedRun& run, int rank) {
    run.options.device.cluster.cross_replica_sync = false;
    run.device.servers = cluster.join(rank);
  });
  cluster.wait();
  for (const OfRank& each : results) {
    EXPECT_THAT(each.lines, HasSubstr("\nWaiting for other replicas to finish warm up\n"));
    EXPECT_THAT(each.lines, HasSubstr("\nStarting real work at step "));
    EXPECT_THAT(each.lines, HasSubstr("\nFinishing real work at step "));
    EXPECT_EQ(each.statistics.num_workers, 2);
  }
}

// Counts the lines of evaluated batches in what a run prints. That of number `late`, from 1 on, takes long.
class LateLine : public std::stringbuf {
 public:
  explicit LateLine(int late) : late_(late) {}
  int lines() const { return lines_; }

 protected:
  int sync() override {
    if (str().find("examples/sec") != std::string::npos && ++lines_ == late_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    }
    str("");
    return std::stringbuf::sync();
  }

 private:
  int late_, lines_ = 0;
};

// The views of --tta open data and make kernels of their own, as the first evaluation does.
TEST(RanksOfRuns, HaveTheTimeOfAFirstEvaluationForTheViewsAtTheEnd) {
  TfCnnOptions options = three_steps();
  options.model = "lenet";
  options.num_classes.reset();
  options.mode = RunMode::kTrainingAndEvaluation;
  options.steps.num_batches = 2;
  options.steps.eval_every_n_steps = 1;
  options.steps.num_eval_batches = 2;
  options.display.display_every = 1;
  options.tta = train::TestTimeAugmentation::kFlip;
  std::array<PreparedRun, 2> runs = {prepare(options), prepare(options)};
  const Connect connect = one_session();
  const auto run_rank = [&](const Group& group) {
    PreparedRun& run = runs.at(static_cast<size_t>(group->rank()));
    run.device.processes = group;
    connect(run, group->rank());
    // Two batches behind the first step, two behind the last one, then those of the views. Rank 0 waits for them.
    LateLine printed(group->rank() == 1 ? 5 : 0);
    std::ostream out(&printed);
    const core::StopSource stop;
    run_training(run, out, stop.token());
    EXPECT_EQ(printed.lines(), 6) << group->rank();
  };
  parallel::on_ranks(2, run_rank, {.start = std::chrono::seconds(60), .step = std::chrono::seconds(1)});
}

// Opens the weights as an evaluation of one of several ranks does, and returns what it refuses; "no error": nothing.
std::string evaluated_by(const Group& group, const std::string& weights) {
  PreparedRun run;
  run.options.mode = RunMode::kEvaluation;
  run.options.weights = weights;
  run.model = &models::find_model("lenet", "imagenet");
  run.input.dataset = "imagenet";
  run.device.processes = group;
  return core::message_of([&] { EXPECT_NE(open_evaluated_model(run), nullptr); });
}

// Each reads a file of its own: of two, the result would be the mean over the images of two models.
TEST(RanksOfRuns, OfAnEvaluationReadTheSameWeights) {
  const core::TempDir temp;
  const std::array<std::vector<float>, 2> values = {{{1, 2}, {1, 3}}};
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<formats::FloatTensor> tensors = {{"fc.weight", {2}, values.at(i)}};
    formats::write_safetensors(temp.file(std::to_string(i)), tensors);
  }
  for (const bool same : {true, false}) {
    parallel::on_ranks(2, [&](const Group& group) {
      const std::string said = evaluated_by(group, temp.file(same ? "0" : std::to_string(group->rank())));
      EXPECT_THAT(said,
                  HasSubstr(same ? "no error" : "the values of the evaluated weights: rank 1: expected 1 tensors"));
    });
  }
}

// Two trainings may have saved at the same step.
TEST(RanksOfRuns, OfAnEvaluationReadTheSameCheckpoint) {
  struct Weight : core::Stateful {
    explicit Weight(float given) : value(given) {}
    void save(core::StateWriter& writer) const override { writer.tensor("model/fc.weight", at::full({7, 3}, value)); }
    void load(const core::StateReader&) override {}
    float value;
  };
  const core::TempDir temp;
  for (const int rank : {0, 1}) {
    train::CheckpointStore(temp.file(std::to_string(rank)))
        .save(5, {.model = "lenet", .dataset = "imagenet", .num_classes = 7}, Weight(static_cast<float>(rank)));
  }
  for (const bool same : {true, false}) {
    parallel::on_ranks(2, [&](const Group& group) {
      const std::string said = evaluated_by(group, temp.file(same ? "0" : std::to_string(group->rank())));
      EXPECT_THAT(said, HasSubstr(same ? "no error"
                                       : "the values of the evaluated weights: rank 1: expected a checkpoint of "
                                         "step 5, "));
    });
  }
}

// Evaluations of a folder that has no checkpoint yet, which wait for it.
PreparedRun waiting_evaluation(const Group& group, const std::string& train_dir, int64_t interval_seconds) {
  PreparedRun run;
  run.options.mode = RunMode::kEvaluation;
  run.options.eval_interval_secs = interval_seconds;
  run.options.saving.train_dir = train_dir;
  run.model = &models::find_model("lenet", "imagenet");
  run.input.dataset = "imagenet";
  run.device.processes = group;
  return run;
}

TEST(RanksOfRuns, AStopOfOneEndsTheEvaluationsOfAll) {
  const core::TempDir temp;
  for (const int stopped : {0, 1}) {
    parallel::on_ranks(2, [&](const Group& group) {
      const PreparedRun run = waiting_evaluation(group, temp.path(), 1000);
      core::StopSource stop;
      if (group->rank() == stopped) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
      std::ostringstream out;
      EXPECT_TRUE(run_evaluation(run, out, stop.token()).stopped_by_signal) << group->rank();
      EXPECT_EQ(out.str(), "Generating evaluation model\nCheckpoint not found in " + temp.path() + "\n");
    });
  }
}

TEST(RanksOfRuns, OfAnEvaluationLookAgainBehindTheInterval) {
  const core::TempDir temp;
  parallel::on_ranks(2, [&](const Group& group) {
    const PreparedRun run = waiting_evaluation(group, temp.path(), 1);
    core::StopSource stop;
    const std::string looked = "Checkpoint not found in " + temp.path() + "\n";
    StoppingText printed(looked, 2, stop);
    std::ostream out(&printed);
    const double seconds =
        core::seconds_of([&] { EXPECT_TRUE(run_evaluation(run, out, stop.token()).stopped_by_signal); });
    EXPECT_GE(seconds, 1) << group->rank();
    EXPECT_EQ(printed.str(), "Generating evaluation model\n" + looked + looked) << group->rank();
  });
}

}  // namespace
}  // namespace trainyard::frontends::ranks_of_runs_test
