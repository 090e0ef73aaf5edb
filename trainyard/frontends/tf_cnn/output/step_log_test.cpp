#include "trainyard/frontends/tf_cnn/output/step_log.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::frontends::step_log_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void print_nothing(std::string_view) {}

// A clock that goes on by `step` seconds with each look.
std::function<double()> ticking(double step) {
  return [now = 0.0, step]() mutable { return now += step; };
}

StepLogOptions step_log_options(std::string& text) {
  StepLogOptions options;
  options.batch_size = 32;
  options.print = [&text](std::string_view lines) { text += std::string(lines) + "\n"; };
  options.clock = ticking(2);
  return options;
}

TRAINYARD_CALLBACK_CONFORMANCE(StepLog, [] {
  return std::make_shared<StepLog>(StepLogOptions{.batch_size = 8, .warmup_steps = 1, .print = print_nothing});
});

TEST(StepLog, PrintsARunAsUpstreamDoes) {
  std::string text;
  StepLogOptions options = step_log_options(text);
  options.warmup_steps = 3;
  options.display_every = 5;
  std::vector<StepReport> reports;
  options.on_line = [&](const StepReport& report) { reports.push_back(report); };
  train::PretendTrainer trainer;
  train::run_callback(trainer, std::make_shared<StepLog>(options), {.steps_per_epoch = 3 + 12});
  EXPECT_TRUE(core::matches_golden(text, "trainyard/frontends/testdata/step_log.txt"));
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(reports[2].local_step, 10);
  EXPECT_EQ(reports[2].global_step, 13);
  EXPECT_NEAR(reports[2].speed.mean, 320, 1e-9);
  EXPECT_NEAR(reports[2].loss, 1.0 / 13, 1e-6);
}

// Over all runs: the same steps as of a training that was not interrupted, and the first of each run.
TEST(StepLog, CanShowTheStepsOfTheWholeTraining) {
  std::string text;
  std::vector<int64_t> shown;
  StepLogOptions options = step_log_options(text);
  options.displayed = DisplayedSteps{.every = 5, .last = 13};
  options.print_warmup = false;
  options.more_columns = "\tepoch";
  options.more_cells = [] { return "\t0.5"; };
  options.on_line = [&](const StepReport& report) { shown.push_back(report.local_step); };
  train::PretendTrainer trainer;
  train::run_callback(trainer, std::make_shared<StepLog>(options), {.steps_per_epoch = 7});
  EXPECT_THAT(shown, ElementsAre(1, 5));
  EXPECT_TRUE(
      text.starts_with("Step\tImg/sec\ttotal_loss\tepoch\n1\timages/sec: 320.0 +/- 0.0 (jitter = 0.0)\t1.000\t0.5\n"))
      << text;
  EXPECT_THAT(text, HasSubstr("\n5\timages/sec: "));
  shown.clear();
  trainer.train({.steps_per_epoch = 13, .starting_step = 7});  // global steps 8 .. 13
  EXPECT_THAT(shown, ElementsAre(8, 10, 13));
}

// An accelerator has not done the last steps yet when their loss is read: the wait is part of the steps' time.
TEST(StepLog, WaitingForAnAcceleratorsLossIsPartOfTheStep) {
  std::string text;
  StepLogOptions options = step_log_options(text);
  options.display_every = 5;
  std::vector<double> speeds;
  options.on_line = [&](const StepReport& report) { speeds.push_back(report.speed.mean); };
  train::PretendTrainer trainer;
  trainer.on_accelerator = true;
  train::run_callback(trainer, std::make_shared<StepLog>(options), {.steps_per_epoch = 5});
  ASSERT_EQ(speeds.size(), 2U);
  EXPECT_NEAR(speeds[0], 32 / 2.1, 1e-9);
  EXPECT_NEAR(speeds[1], 5 * 32 / (5 * 0.1 + 2 * 2), 1e-9);
}

TEST(StepLog, CountsFromTheRunsOwnBeginningAfterAResume) {
  std::string text;
  StepLogOptions options = step_log_options(text);
  options.warmup_steps = 1;
  options.display_every = 1;
  options.num_workers = 2;
  train::PretendTrainer trainer;
  trainer.train({.steps_per_epoch = 20});
  const auto log = std::make_shared<StepLog>(options);
  train::run_callback(trainer, log, {.steps_per_epoch = 4});
  EXPECT_EQ(log->steps(), 3);
  EXPECT_DOUBLE_EQ(log->elapsed_seconds(), 2);
  EXPECT_DOUBLE_EQ(log->images_per_second(), 2 * 3 * 32 / 2.0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '+'), 3) << text;
  EXPECT_THAT(text, HasSubstr("total images/sec: 96.00"));
}

// Reading a loss of an accelerator takes 2 s of the clock, so that the steps with a line are longer than the others.
TEST(StepLog, BeginsAgainWithEachRun) {
  std::string text;
  StepLogOptions options = step_log_options(text);
  options.display_every = 2;
  options.warmup_steps = 1;
  options.loss = [](const train::StepView&) { return 0.5; };
  train::PretendTrainer trainer;
  trainer.on_accelerator = true;
  const auto log = std::make_shared<StepLog>(options);
  train::run_callback(trainer, log, {.steps_per_epoch = 1 + 5});
  const std::string first = text;
  EXPECT_EQ(std::count(first.begin(), first.end(), '+'), 3) << first;
  EXPECT_EQ(log->steps(), 5);
  text.clear();
  trainer.train({.steps_per_epoch = 1 + 5});
  EXPECT_EQ(text, first);
  EXPECT_EQ(log->steps(), 5);
  text.clear();
  trainer.train({.steps_per_epoch = 1});
  EXPECT_EQ(text, "Running warm up\n" + total_lines(0) + "\n") << "its only step warms up";
  EXPECT_EQ(log->steps(), 0);
  EXPECT_EQ(log->elapsed_seconds(), 0);
  EXPECT_EQ(log->images_per_second(), 0);
}

TEST(StepLog, ARunAfterOneThatFailedHasItsTotal) {
  std::string text;
  bool fails = true;
  train::PretendTrainer trainer;
  trainer.in_step = [&fails](int64_t) {
    if (fails) throw core::Error(core::ErrorCode::kIo, "on purpose");
  };
  const auto log = std::make_shared<StepLog>(step_log_options(text));
  EXPECT_THROW(train::run_callback(trainer, log, {.steps_per_epoch = 2}), core::Error);
  EXPECT_EQ(text.find("total images/sec"), std::string::npos) << text;
  fails = false;
  trainer.train({.steps_per_epoch = 3, .starting_step = 3});
  EXPECT_THAT(text, HasSubstr(total_lines(0))) << "also without a step";
}

TEST(StepLog, IsReadByOthersAsItIsPrinted) {
  const core::TempDir directory;
  const std::string file = directory.file("output");
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  const int written = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(written, 0);
  ::dup2(written, STDOUT_FILENO);
  ::close(written);
  print_to_stdout("one\ntwo");
  const std::string text = core::local_file_system().read_file(file);
  std::fflush(stdout);
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  EXPECT_EQ(text, "one\ntwo\n");
}

TEST(StepLog, SaysNoTotalOfARunThatFailed) {
  std::string text;
  train::PretendTrainer trainer;
  trainer.in_step = [](int64_t step) {
    if (step == 2) throw core::Error(core::ErrorCode::kIo, "on purpose");
  };
  EXPECT_THROW(train::run_callback(trainer, std::make_shared<StepLog>(step_log_options(text)), {.steps_per_epoch = 5}),
               core::Error);
  EXPECT_EQ(text.find("total images/sec"), std::string::npos) << text;
}

TEST(StepLog, NamesAndReadsTheLossThatItIsGiven) {
  std::string text;
  StepLogOptions options = step_log_options(text);
  options.loss_name = "base_loss";
  options.loss = [](const train::StepView&) { return 2.5; };
  train::PretendTrainer trainer;
  train::run_callback(trainer, std::make_shared<StepLog>(options), {.steps_per_epoch = 1});
  EXPECT_THAT(text, HasSubstr("Step\tImg/sec\tbase_loss\n"));
  EXPECT_THAT(text, HasSubstr("(jitter = 0.0)\t2.500\n"));
}

TEST(StepLog, WaitsForOthersOnceAndBehindTheWarmUp) {
  std::string text;
  StepLogOptions options = step_log_options(text);
  options.warmup_steps = 2;
  std::string before_waiting;
  int waits = 0;
  options.before_timed = [&] {
    ++waits;
    before_waiting = text;
  };
  train::PretendTrainer trainer;
  train::run_callback(trainer, std::make_shared<StepLog>(options), {.steps_per_epoch = 5});
  EXPECT_EQ(waits, 1);
  EXPECT_THAT(before_waiting, HasSubstr("Running warm up"));
  EXPECT_EQ(before_waiting.find("images/sec"), std::string::npos) << before_waiting;
}

TEST(StepLog, SaysTheTotalWhereItIsWanted) {
  for (const bool prints : {true, false}) {
    std::string text;
    StepLogOptions options = step_log_options(text);
    options.print_total = prints;
    options.all_images_per_second = [] { return 1234.5; };
    std::vector<double> totals;
    options.on_total = [&](double images_per_second) { totals.push_back(images_per_second); };
    train::PretendTrainer trainer;
    train::run_callback(trainer, std::make_shared<StepLog>(options), {.steps_per_epoch = 3});
    EXPECT_EQ(text.find("total images/sec: 1234.50") != std::string::npos, prints) << text;
    EXPECT_THAT(totals, ElementsAre(1234.5));
  }
}

TEST(StepLog, IsTheChiefsUnlessEveryWorkerHasItsOwn) {
  EXPECT_TRUE(StepLog({.batch_size = 1}).chief_only());
  EXPECT_FALSE(StepLog({.batch_size = 1, .every_worker = true}).chief_only());
}

TEST(StepLog, RefusalsTellTheNumber) {
  const auto message = [](const StepLogOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(message({.batch_size = 1}), "no error");
  EXPECT_EQ(message({.batch_size = -3}), "batch_size must be positive: got -3");
  EXPECT_EQ(message({.batch_size = 1, .num_workers = -4}), "num_workers must be positive: got -4");
  EXPECT_EQ(message({.batch_size = 1, .display_every = -5}), "display_every must be positive: got -5");
  EXPECT_EQ(message({.batch_size = 1, .warmup_steps = -6}), "warmup_steps must not be negative: got -6");
  EXPECT_EQ(message({.batch_size = 1, .display_perf_ewma = 1.5}), "display_perf_ewma must be in [0, 1]: got 1.5");
  EXPECT_EQ(message({.batch_size = 1, .display_perf_ewma = -0.5}), "display_perf_ewma must be in [0, 1]: got -0.5");
  for (const double end : {0.0, 1.0}) EXPECT_EQ(message({.batch_size = 1, .display_perf_ewma = end}), "no error");
}

TEST(StepLog, RefusesBadOptions) {
  for (const auto& change : std::vector<std::function<void(StepLogOptions&)>>{
           [](auto& o) { o.batch_size = 0; }, [](auto& o) { o.display_every = 0; }, [](auto& o) { o.num_workers = 0; },
           [](auto& o) { o.warmup_steps = -1; }, [](auto& o) { o.display_perf_ewma = 1.5; }}) {
    StepLogOptions options{.batch_size = 1};
    change(options);
    EXPECT_THROW(StepLog{options}, core::Error);
  }
}

}  // namespace
}  // namespace trainyard::frontends::step_log_test
