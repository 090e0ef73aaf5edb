// What a prepared run has of its devices, classes and flags, and what forward passes and evaluations make of it.
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/testing/class_folders.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/benchmark_log_file.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/run_record.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"
#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::frontends::prepared_run_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

// Steps of two images for lenet.
TfCnnOptions options_of_lenet(Dialect dialect, int64_t steps) {
  TfCnnOptions options;
  options.dialect = dialect;
  options.model = "lenet";
  options.batch_size = 2;
  options.steps.num_batches = steps;
  options.steps.num_warmup_batches = 0;
  options.display.display_every = 1;
  options.device.gpu = false;
  options.learning_rate.init_learning_rate = 0.01;
  return options;
}

TEST(RunRecord, NamesEachGpu) {
  PreparedRun run;
  run.device.accelerators = {std::make_shared<train::FakeAccelerator>(), std::make_shared<train::FakeAccelerator>()};
  EXPECT_THAT(make_run_record(run).gpus, ElementsAre("fake", "fake"));
}

TEST(BenchmarkLogFile, NamesEachGpu) {
  const core::TempDir temp;
  TfCnnOptions options = options_of_lenet(Dialect::kTfCnnBenchmarks, 3);
  options.display.benchmark_log_dir = temp.file("log");
  PreparedRun run = prepare(options);
  run.device.accelerators = {std::make_shared<train::FakeAccelerator>()};
  open_benchmark_log(run)->close();
  const auto facts = nlohmann::json::parse(core::local_file_system().read_file(temp.file("log/benchmark_run.log")));
  EXPECT_EQ(facts.at("machine").at("gpus"), nlohmann::json::array({"fake"}));
  EXPECT_EQ(facts.at("num_batches"), 3);
}

// An epoch may be one step, or less than one.
TEST(AverageOfARun, IsUpdatedOnceAnEpochAndAtLeastEachStep) {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "network"});
  PreparedRun run;
  run.options.dialect = Dialect::kTrainyard;
  run.options.learning_rate.init_learning_rate = 0.5;
  run.options.average.swa_start_epoch = 1;
  run.model = &models::find_model("lenet", "imagenet");
  run.graph = b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = 2}));
  run.num_classes = 2;
  run.batch_size = 4;
  run.plan.num_batches = 30;
  for (const auto& [examples, every] : {std::pair<int64_t, int64_t>{1, 1}, {4, 1}, {8, 2}, {10, 3}, {40, 10}}) {
    run.train_examples = examples;
    EXPECT_EQ(make_trainer_options(run).average.value().every, every) << examples;
  }
}

TEST(ClassesOfARun, OutputsThatAreNeverALabelAreCounted) {
  const core::TempDir temp;
  data::write_two_classes(temp.file("photos"));
  const auto said = [&](int64_t classes) {
    TfCnnOptions options = options_of_lenet(Dialect::kTfCnnBenchmarks, 1);
    options.model = "trivial";
    options.input.data_dir = temp.file("photos");
    options.num_classes = classes;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(prepare(options).num_classes, classes);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(2), Not(HasSubstr("never a label")));
  EXPECT_THAT(said(3), HasSubstr("--num_classes=3 with 2 classes: 1 of the outputs is never a label"));
  EXPECT_THAT(said(5), HasSubstr("--num_classes=5 with 2 classes: 3 of the outputs are never a label"));
}

// A checkpoint of an earlier release does not say the size of its images.
TEST(ImagesOfARun, HaveTheModelsSizeWhereNothingSaysAnother) {
  PreparedRun run;
  run.options.dialect = Dialect::kTrainyard;
  run.options.mode = RunMode::kEvaluation;
  run.model = &models::find_model("lenet", "imagenet");
  run.input.dataset = "imagenet";
  run.num_classes = 7;
  TrainedInput& trained = run.options.input.images.trained.emplace();
  trained.input.height = 50;
  trained.input.width = 54;
  settle_images(run);
  EXPECT_EQ(trained.input.height, 28);
  EXPECT_EQ(trained.input.width, 28);
  EXPECT_EQ(run.input.transform.height, 28);
  EXPECT_EQ(run.input.transform.width, 28);
}

std::string problem_of(const std::string& line) {
  std::vector<std::string> arguments;
  std::istringstream words(line);
  for (std::string word; words >> word;) arguments.push_back(word);
  return core::problem_of([&] { validate_flags(core::parse_flags(tf_cnn_flags(), arguments)); });
}

TEST(FlagsOfARun, ClippingAndAveragesAreCheckedTogether) {
  const std::string clips = "At most one of --clip_norm, --clip_global_norm and --adaptive_clip can be specified";
  EXPECT_EQ(problem_of("--clip_norm=1 --clip_global_norm=1"), clips);
  EXPECT_EQ(problem_of("--clip_norm=1 --adaptive_clip=1"), clips);
  EXPECT_EQ(problem_of("--clip_norm=1"), "");
  EXPECT_EQ(problem_of("--ema_decay=0.9 --swa_start_epoch=1"),
            "At most one of --ema_decay and --swa_start_epoch can be specified");
  EXPECT_EQ(problem_of("--average_every=2"), "--average_every requires --ema_decay or --swa_start_epoch");
  EXPECT_EQ(problem_of("--average_every=2 --ema_decay=0.9"), "");
  EXPECT_EQ(problem_of("--ema_warmup"), "--ema_warmup requires --ema_decay");
}

// Workers that wait for each other have a last step of their own.
TEST(FlagsOfARun, StatisticsAreRecalibratedByWorkersOfOnePace) {
  const std::string worker = "--recalibrate_batch_norm=2 --job_name=worker";
  EXPECT_EQ(problem_of(worker), "");
  EXPECT_EQ(problem_of(worker + " --cross_replica_sync=false"),
            "--recalibrate_batch_norm is not for --nocross_replica_sync, whose workers have no last step of their own");
}

TEST(FlagsOfARun, TrackersTakeTheNumbersOfEachStep) {
  const std::string line = "--trackers=mlflow --train_dir=run --summary_verbosity=1 --save_summaries_steps=";
  EXPECT_EQ(problem_of(line + "1"), "");
  EXPECT_EQ(problem_of(line + "0"), "--trackers has no numbers to write: the run records none");
}

std::string printed(const TfCnnOptions& options) {
  std::ostringstream out;
  BenchmarkCnn(options).run(out);
  return out.str();
}

// tf_cnn_benchmarks has the column in any case.
TEST(ForwardPasses, ShowTheFiveBestWhereThereAreMoreClasses) {
  TfCnnOptions options = options_of_lenet(Dialect::kTrainyard, 2);
  options.mode = RunMode::kForwardOnly;
  options.display.print_training_accuracy = true;
  options.num_classes = 5;
  EXPECT_THAT(printed(options), HasSubstr("\ttop_1_accuracy\n"));
  options.num_classes = 6;
  EXPECT_THAT(printed(options), HasSubstr("\ttop_1_accuracy\ttop_5_accuracy\n"));
  options.dialect = Dialect::kTfCnnBenchmarks;
  options.num_classes = 5;
  EXPECT_THAT(printed(options), HasSubstr("\ttop_1_accuracy\ttop_5_accuracy\n"));
}

TEST(ForwardPasses, EndWhereTheyAreStopped) {
  TfCnnOptions options = options_of_lenet(Dialect::kTrainyard, 5);
  options.mode = RunMode::kForwardOnly;
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  std::ostringstream out;
  const RunStatistics statistics = BenchmarkCnn(options).run(out, stop.token());
  EXPECT_LE(statistics.num_steps, 1);
  EXPECT_TRUE(statistics.stopped_by_signal);
}

// The steps of the run that has written the checkpoint count.
TEST(ForwardPasses, ContinueBehindTheStepsOfTheirTrainDirectory) {
  const core::TempDir temp;
  TfCnnOptions options = options_of_lenet(Dialect::kTfCnnBenchmarks, 2);
  options.saving.train_dir = temp.file("run");
  printed(options);
  options.mode = RunMode::kForwardOnly;
  options.steps.num_batches = 5;
  std::ostringstream out;
  EXPECT_EQ(BenchmarkCnn(options).run(out).num_steps, 5 - 2);
}

// The lines of tf_cnn_benchmarks do not say which release has run.
TEST(RunOfADialect, LogsTheVersionWhereItsLinesDoNot) {
  const auto log = [](Dialect dialect) {
    ::testing::internal::CaptureStderr();
    printed(options_of_lenet(dialect, 1));
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string version =
      fmt::format("Trainyard {} ({})", core::build_info().version, core::build_info().git_revision);
  EXPECT_THAT(log(Dialect::kTfCnnBenchmarks), HasSubstr(version));
  EXPECT_THAT(log(Dialect::kTrainyard), Not(HasSubstr(version)));
}

// Returns the numbers of this name in metrics.jsonl.
std::vector<double> recorded(const std::string& train_dir, const std::string& name) {
  std::vector<double> numbers;
  std::istringstream lines(core::local_file_system().read_file(core::join_path(train_dir, "metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = nlohmann::json::parse(line).flatten();
    for (const auto& [key, value] : row.items()) {
      if (key.ends_with("/" + name)) numbers.push_back(value.get<double>());
    }
  }
  return numbers;
}

TEST(SummariesOfATraining, HaveTheLossScaleAndHowLongItIsKept) {
  using Scale = std::optional<optim::LossScalerOptions>;
  const core::TempDir temp;
  for (const auto& [name, scale] : {std::pair<std::string, Scale>{"none", std::nullopt},
                                    {"constant", optim::LossScalerOptions{.scale = 8}},
                                    {"automatic", optim::LossScalerOptions{.scale = 8, .automatic = true}}}) {
    TfCnnOptions options = options_of_lenet(Dialect::kTrainyard, 2);
    options.saving.train_dir = temp.file(name);
    options.display.summary_verbosity = 1;
    PreparedRun run = prepare(options);
    run.device.loss_scale = scale;
    std::ostringstream out;
    const core::StopSource stop;
    EXPECT_EQ(run_training(run, out, stop.token()).num_steps, 2);
    EXPECT_EQ(recorded(options.saving.train_dir, "loss_scale"), std::vector<double>(scale ? 2U : 0U, 8.0)) << name;
    const std::vector<double> kept = recorded(options.saving.train_dir, "loss_scale_normal_steps");
    ASSERT_EQ(kept.size(), scale && scale->automatic ? 2U : 0U) << name;
    if (!kept.empty()) {
      EXPECT_EQ(kept[1], kept[0] + 1);
    }
  }
}

// The training is in a later step when the numbers are known, by which the best is chosen.
TEST(EvaluationsOfATraining, KeepNoBestOneWhereTheirNumbersComeLater) {
  const core::TempDir temp;
  for (const bool later : {false, true}) {
    TfCnnOptions options = options_of_lenet(Dialect::kTrainyard, 2);
    options.mode = RunMode::kTrainingAndEvaluation;
    options.steps.num_eval_batches = 1;
    options.steps.eval_every_n_steps = 1;
    options.saving.train_dir = temp.file(later ? "later" : "at_once");
    options.saving.keep_best = "top_1";
    options.collect_eval_results_async = later;
    ::testing::internal::CaptureStderr();
    printed(options);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("no best checkpoint is kept: with --collect_eval_results_async") != std::string::npos, later);
    EXPECT_EQ(core::local_file_system().exists(core::join_path(options.saving.train_dir, "best")), !later);
  }
}

class EvaluatedFolder : public ::testing::Test {
 protected:
  EvaluatedFolder() {
    TfCnnOptions training = options_of_lenet(Dialect::kTrainyard, 2);
    training.saving.train_dir = temp_.file("run");
    printed(training);
    evaluation_ = options_of_lenet(Dialect::kTrainyard, 2);
    evaluation_.mode = RunMode::kEvaluation;
    evaluation_.steps.num_eval_batches = 2;
  }

  core::TempDir temp_;
  TfCnnOptions evaluation_;
};

// Weights alone have no folder to explain an evaluation in.
TEST_F(EvaluatedFolder, OfWeightsHasNoFiles) {
  evaluation_.weights = temp_.file("run");
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(printed(evaluation_), HasSubstr("Accuracy @ 1 = "));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("what the evaluation explains")));
}

TEST_F(EvaluatedFolder, ThatIsNamedMustBeWritable) {
  core::local_file_system().write_file_atomically(temp_.file("file"), "text");
  evaluation_.saving.train_dir = temp_.file("run");
  evaluation_.eval_dir = temp_.file("file/below");
  EXPECT_TRUE(core::error_of([&] { printed(evaluation_); }).has_value());
}

}  // namespace
}  // namespace trainyard::frontends::prepared_run_test
