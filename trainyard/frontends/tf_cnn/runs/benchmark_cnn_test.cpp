#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"

#include <cmath>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends::benchmark_cnn_test {
namespace {

TfCnnOptions from_flags(const std::vector<std::string>& arguments) {
  constexpr auto kDialect = Dialect::kTfCnnBenchmarks;
  return read_options(core::parse_flags(tf_cnn_flags(kDialect), arguments), kDialect);
}

// What a run prints, without the speeds, which are other ones each time.
std::string printed(const TfCnnOptions& options) {
  std::ostringstream out;
  EXPECT_FALSE(BenchmarkCnn(options).run(out).stopped_by_signal);
  const std::string without =
      std::regex_replace(out.str(), std::regex("images/sec: .*jitter = [^)]*\\)"), "images/sec");
  return std::regex_replace(without, std::regex("total images/sec: .*"), "total");
}

TfCnnOptions two_steps(const std::string& train_dir) {
  TfCnnOptions options;
  options.model = "lenet";
  options.batch_size = 2;
  options.steps.num_batches = 2;
  options.steps.num_warmup_batches = 0;
  options.display.display_every = 1;
  options.device.gpu = false;
  options.device.deterministic = true;
  options.update.optimizer = "momentum";
  options.learning_rate.init_learning_rate = 0.01;
  options.saving.train_dir = train_dir;
  return options;
}

// A program without flags fills the struct by hand, and runs what the flags run.
TEST(BenchmarkCnn, TrainsTwoStepsByOptionsThatWereFilledByHand) {
  const core::TempDir directory;
  const std::string by_hand = printed(two_steps(directory.file("hand")));
  EXPECT_THAT(by_hand, ::testing::HasSubstr("\n2\timages/sec"));
  EXPECT_EQ(train::find_checkpoint(directory.file("hand")).global_step, 2);

  const std::string by_flags =
      printed(from_flags({"--model=lenet", "--batch_size=2", "--num_batches=2", "--num_warmup_batches=0",
                          "--display_every=1", "--device=cpu", "--deterministic", "--optimizer=momentum",
                          "--init_learning_rate=0.01", "--train_dir=" + directory.file("flags")}));
  EXPECT_EQ(by_hand, by_flags);
}

TEST(BenchmarkCnn, EvaluatesWhatWasTrainedByOptionsThatWereFilledByHand) {
  const core::TempDir directory;
  TfCnnOptions options = two_steps(directory.file("run"));
  printed(options);
  options.mode = RunMode::kEvaluation;
  options.steps.num_eval_batches = 2;
  EXPECT_THAT(printed(options), ::testing::HasSubstr("[4 examples]"));
}

// Returns the number behind `label`, to the end of its line.
double number_after(const std::string& text, const std::string& label) {
  const size_t begin = text.rfind(label);
  EXPECT_NE(begin, std::string::npos) << label << " is not in:\n" << text;
  return begin == std::string::npos ? 0 : std::stod(text.substr(begin + label.size()));
}

TEST(BenchmarkCnn, ReturnsTheStatisticsThatItsLinesShow) {
  const core::TempDir directory;
  TfCnnOptions options = two_steps(directory.file("run"));
  options.steps.num_warmup_batches = 1;
  options.steps.num_batches = 3;
  options.device.replicas = 2;
  std::ostringstream lines;
  RunStatistics trained = BenchmarkCnn(options).run(lines);
  EXPECT_EQ(trained.num_workers, 1);
  EXPECT_EQ(trained.num_steps, 3);
  EXPECT_NEAR(trained.images_per_sec, number_after(lines.str(), "total images/sec: "), 0.005 + 1e-9);
  EXPECT_NEAR(trained.average_wall_time * trained.images_per_sec, 2 * 2, 1e-9);
  ASSERT_TRUE(trained.last_average_loss.has_value());
  EXPECT_NEAR(*trained.last_average_loss, number_after(lines.str(), "\t"), 0.0005 + 1e-9);
  EXPECT_FALSE(trained.top_1_accuracy || trained.top_5_accuracy);

  // Nothing is left to do.
  options.steps.num_batches = 1;
  trained = BenchmarkCnn(options).run(lines);
  EXPECT_EQ(trained.num_steps, 0);
  EXPECT_EQ(trained.average_wall_time, 0);
  EXPECT_FALSE(trained.last_average_loss.has_value());

  options.mode = RunMode::kEvaluation;
  options.steps.num_eval_batches = 3;
  options.device.replicas = 1;
  lines.str("");
  const RunStatistics evaluated = BenchmarkCnn(options).run(lines);
  ASSERT_TRUE(evaluated.top_1_accuracy && evaluated.top_5_accuracy);
  EXPECT_NEAR(*evaluated.top_1_accuracy, number_after(lines.str(), "Accuracy @ 1 = "), 0.00005 + 1e-9);
  EXPECT_NEAR(*evaluated.top_5_accuracy, number_after(lines.str(), "Accuracy @ 5 = "), 0.00005 + 1e-9);
  EXPECT_NEAR(evaluated.images_per_sec, number_after(lines.str(), "total images/sec: "), 0.005 + 1e-9);
  EXPECT_EQ(evaluated.num_steps, 0);

  TfCnnOptions forward = two_steps("");
  forward.mode = RunMode::kForwardOnly;
  const RunStatistics passed = BenchmarkCnn(forward).run(lines);
  EXPECT_EQ(passed.num_steps, 2);
  EXPECT_GT(passed.images_per_sec, 0);
  EXPECT_FALSE(passed.last_average_loss || passed.top_1_accuracy);
}

// The rate is that of the run which the same options train, and nothing is trained.
TEST(BenchmarkCnn, DrawsItsScheduleInsteadOfTraining) {
  const core::TempDir directory;
  TfCnnOptions options = two_steps(directory.file("run"));
  options.learning_rate.schedule = "polynomial";
  options.learning_rate.minimum = 0.002;
  options.steps.num_batches = 5;
  options.plot_schedule = directory.file("rate.svg");
  std::ostringstream out;
  const RunStatistics statistics = BenchmarkCnn(options).run(out);
  EXPECT_EQ(statistics.num_steps, 0);
  EXPECT_THAT(out.str(), ::testing::HasSubstr("==========\nLearning rate: polynomial, 5 steps (0.00 epochs)\n"
                                              "Warm-up: none\nBoundaries: none\n"
                                              "Minimum 0.0036 at step 4 (epoch 0.00); maximum 0.01 at step 0"));
  EXPECT_THAT(out.str(), ::testing::EndsWith("Picture: " + options.plot_schedule +
                                             "\nNumbers: " + directory.file("rate.csv") + "\n"));
  EXPECT_THAT(core::local_file_system().read_file(directory.file("rate.csv")),
              ::testing::StartsWith("step,epoch,learning_rate\n0,0,0.01\n1,"));
  EXPECT_EQ(core::local_file_system().read_file(options.plot_schedule).substr(0, 4), "<svg");
  EXPECT_FALSE(core::local_file_system().exists(options.saving.train_dir));
}

// Numbers that the trainer's parts refuse are found in front of the first file, for callers without flags, too.
TEST(BenchmarkCnn, RefusesNumbersBeforeItWritesAnything) {
  const core::TempDir directory;
  const auto message = [&](const auto& change) {
    TfCnnOptions options = two_steps(directory.file("run"));
    change(options);
    std::ostringstream out;
    std::string text = core::message_of([&] { BenchmarkCnn(options).run(out); });
    EXPECT_FALSE(core::local_file_system().exists(directory.file("run"))) << text;
    return text;
  };
  EXPECT_THAT(message([](TfCnnOptions& o) { o.loss.label_smoothing = 1; }),
              ::testing::HasSubstr("label_smoothing is out of range: expected [0, 1), got 1"));
  EXPECT_THAT(message([](TfCnnOptions& o) { o.average.ema_decay = 1; }),
              ::testing::HasSubstr("the decay of averaged weights is not usable"));
  EXPECT_THAT(message([](TfCnnOptions& o) { o.average.recalibrate_batch_norm = 1; }),
              ::testing::HasSubstr("there are no batch norms to recalibrate"));
  EXPECT_THAT(message([](TfCnnOptions& o) { o.update.numbers["momentum"] = 1.5; }),
              ::testing::HasSubstr("momentum is not usable"));
}

// What these ask for beside other flags reaches the trainer.
TEST(BenchmarkCnn, SchedulesMomentumAndKeepsVariablesIn16Bits) {
  TfCnnOptions cycle = two_steps("");
  cycle.steps.num_batches = 6;
  cycle.learning_rate.schedule = "one_cycle";
  cycle.learning_rate.init_learning_rate = 0.05;
  TfCnnOptions with_momentum = cycle;
  with_momentum.learning_rate.cycle_momentum = true;
  with_momentum.learning_rate.one_cycle.least_momentum = 0.1;
  EXPECT_NE(printed(with_momentum), printed(cycle));
  with_momentum.update.optimizer = "sgd";
  EXPECT_THAT(core::message_of([&] { printed(with_momentum); }), ::testing::HasSubstr("momentum, or beta1"));

  TfCnnOptions bfloat16 = two_steps("");
  bfloat16.steps.num_batches = 6;
  bfloat16.device.use_bf16 = true;
  TfCnnOptions variables = bfloat16;
  variables.device.fp16_vars = true;
  const core::TempDir directory;
  variables.saving.train_dir = directory.file("run");
  EXPECT_NE(printed(variables), printed(bfloat16));
}

TEST(Prepare, SeesNewFilesWhenItOpensTheDataAgain) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const auto add = [&](const std::string& folder, const std::string& name) {
    files.make_directories(directory.file("photos/train/" + folder));
    files.write_file_atomically(directory.file("photos/train/" + folder + "/" + name), "nobody decodes it here");
  };
  add("cat", "1.png");
  add("dog", "1.png");
  TfCnnOptions options = two_steps("");
  options.input.data_dir = directory.file("photos");
  PreparedRun run = prepare(options);
  EXPECT_EQ(run.train_data->size(), 2);
  EXPECT_NE(run.input.files, nullptr) << "all parts of the run share one listing of the folder";
  add("dog", "2.png");
  add("owl", "1.png");
  open_data(run);
  EXPECT_EQ(run.train_data->size(), 4);
  EXPECT_EQ(run.classes.names, (std::vector<std::string>{"cat", "dog", "owl"}));
}

// The warm-up of tf_cnn_benchmarks trains in front of num_batches, that of `trainyard train` is a part of them.
TEST(Prepare, ACosineEndsWithTheLastStepOfTheTraining) {
  TfCnnOptions options = two_steps("");
  options.steps.num_batches = 10;
  options.steps.num_warmup_batches = 3;
  options.learning_rate.init_learning_rate = 1;
  options.learning_rate.schedule = "cosine";
  options.dialect = Dialect::kTfCnnBenchmarks;
  const optim::LearningRate benchmark = make_schedule(prepare(options)).learning_rate;
  EXPECT_NEAR(benchmark(13), 0, 1e-12);
  EXPECT_NEAR(benchmark(10), 0.5 * (1 + std::cos(M_PI * 10 / 13)), 1e-9);
  options.dialect = Dialect::kTrainyard;
  const optim::LearningRate training = make_schedule(prepare(options)).learning_rate;
  EXPECT_NEAR(training(10), 0, 1e-12);
  EXPECT_NEAR(training(9), 0.5 * (1 + std::cos(M_PI * 9 / 10)), 1e-9);
}

TEST(TfCnnOptions, RefuseWhatWouldNotRun) {
  const auto problem = [](const std::function<void(TfCnnOptions&)>& change) {
    TfCnnOptions options;
    change(options);
    return core::problem_of([&] { options.validate(); });
  };
  EXPECT_EQ(problem([](TfCnnOptions&) {}), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.device.replicas = 0; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.micro_steps = 0; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.batch_size = -2; }), "");  // -1: kLargestBatch, which the run finds out
  EXPECT_NE(problem([](TfCnnOptions& o) { o.eval_batch_size = -1; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.display.display_every = 0; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.mode = RunMode::kEvaluation; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.mode = RunMode::kTrainingAndEvaluation; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) { o.steps.eval_every_n_steps = 5; }), "");
  EXPECT_NE(problem([](TfCnnOptions& o) {
              o.mode = RunMode::kForwardOnly;
              o.plot_schedule = "rate.svg";
            }),
            "");
}

TEST(TfCnnOptions, AnExactEvaluationHasNoOtherLength) {
  const auto problem = [](bool exact, std::optional<int64_t> batches, std::optional<double> epochs) {
    TfCnnOptions options;
    options.mode = RunMode::kEvaluation;
    options.saving.train_dir = "run";
    options.eval_exact = exact;
    options.steps.num_eval_batches = batches;
    options.steps.num_eval_epochs = epochs;
    return core::problem_of([&] { options.validate(); });
  };
  EXPECT_THAT(problem(true, 2, std::nullopt), ::testing::HasSubstr("--eval_exact sees every image once"));
  EXPECT_THAT(problem(true, std::nullopt, 0.5), ::testing::HasSubstr("--eval_exact sees every image once"));
  EXPECT_EQ(problem(true, 0, std::nullopt), "");
  EXPECT_EQ(problem(false, 2, std::nullopt), "");
}

TEST(ReadOptions, TouchesNothing) {
  const core::TempDir directory;
  const TfCnnOptions options = from_flags(
      {"--data_dir=/no/where", "--train_dir=" + directory.file("run"), "--device=gpu", "--variable_update=horovod",
       "--benchmark_log_dir=" + directory.file("log"), "--decoded_cache_dir=" + directory.file("cache")});
  EXPECT_EQ(options.input.data_dir, "/no/where");
  EXPECT_EQ(options.device.gpu, true);
  EXPECT_TRUE(core::local_file_system().list(directory.path()).empty());
}

TEST(ReadOptions, KeepsWarningsThatTheRunLogs) {
  EXPECT_TRUE(from_flags({}).warnings.empty());
  const TfCnnOptions warned = from_flags({"--num_learning_rate_warmup_epochs=1"});
  ASSERT_EQ(warned.warnings.size(), 1U);
  TfCnnOptions options = two_steps("");
  options.warnings = warned.warnings;
  testing::internal::CaptureStderr();
  printed(options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), ::testing::HasSubstr(warned.warnings[0]));
}

// Flags are read by the files that are named for it; what lies behind them takes options.
TEST(ReadOptions, IsTheOnlyPlaceThatReadsFlags) {
  const std::set<std::string> readers = {"paddle/flags",         "tf_cnn/fine_tuning_flags", "tf_cnn/flag_validation",
                                         "tf_cnn/flags",         "tf_cnn/read_options",      "tf_cnn/run_flags",
                                         "tf_cnn/trainer_flags", "train_ctl/flags"};
  const std::filesystem::path room = core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/frontends");
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(room)) {
    const std::filesystem::path& path = entry.path();
    const std::string stem = (path.parent_path() / path.stem()).lexically_relative(room).string();
    const bool code = path.extension() == ".h" || path.extension() == ".cpp";
    if (!code || stem.ends_with("_test") || stem.starts_with("options/") || readers.contains(stem)) continue;
    ++files;
    std::istringstream lines(core::local_file_system().read_file(path.string()));
    for (std::string line; std::getline(lines, line);) {
      const bool comment = line.find("//") < line.find("FlagValues");
      EXPECT_TRUE(comment || line.find("FlagValues") == std::string::npos) << path << ": " << line;
    }
  }
  EXPECT_GT(files, 40);
}

}  // namespace
}  // namespace trainyard::frontends::benchmark_cnn_test
