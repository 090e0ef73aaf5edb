#include "trainyard/train/callbacks/hyperparameter_setters.h"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::hyperparameter_setters_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Notes the value in force in each step, and writes a statistic after each epoch.
struct Noting : Callback {
  std::string name() const override { return "noting"; }
  void after_step(Trainer& trainer, const StepView&) override { values.push_back(trainer.hyperparameters().get("x")); }
  void after_epoch(Trainer& trainer) override {
    const auto epoch = static_cast<size_t>(trainer.epoch());
    if (epoch > statistics.size()) return;
    trainer.monitors().write(
        Scalars{.global_step = trainer.global_step(), .phase = "eval", .values = {{"loss", statistics[epoch - 1]}}});
  }
  std::vector<double> values, statistics;
};

struct WithX : PretendTrainer {
  explicit WithX(double x = 10) {
    hyperparameters().add("x", x);
    add(noting);
  }
  std::shared_ptr<Noting> noting = std::make_shared<Noting>();
};

using Entries = std::vector<ScheduledHyperParamSetter::Entry>;

std::vector<double> values_of(std::shared_ptr<Callback> setter, const LoopOptions& loop, double x = 10) {
  WithX trainer(x);
  trainer.add(std::move(setter));
  trainer.train(loop);
  return trainer.noting->values;
}

TEST(ScheduledHyperParamSetter, SetsAfterTheEpochsThatItNames) {
  const LoopOptions loop{.steps_per_epoch = 2, .max_epoch = 4};
  EXPECT_THAT(values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{1, 5}, {3, 1}}), loop),
              ElementsAre(10, 10, 5, 5, 5, 5, 1, 1));
  EXPECT_THAT(values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{0, 7}}), loop),
              ElementsAre(7, 7, 7, 7, 7, 7, 7, 7));
}

TEST(ScheduledHyperParamSetter, SetsAfterStepsAndOnTheLineBetween) {
  const LoopOptions loop{.steps_per_epoch = 4, .max_epoch = 2};
  EXPECT_THAT(
      values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{2, 5}, {5, 1}}, ScheduleUnit::kSteps), loop),
      ElementsAre(10, 10, 5, 5, 5, 1, 1, 1));
  EXPECT_THAT(values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{1, 8}, {5, 0}}, ScheduleUnit::kSteps,
                                                                    ScheduleInterpolation::kLinear),
                        loop),
              ElementsAre(10, 8, 6, 4, 2, 0, 0, 0));
  EXPECT_THAT(values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{0, 8}, {2, 4}}, ScheduleUnit::kEpochs,
                                                                    ScheduleInterpolation::kLinear),
                        {.steps_per_epoch = 1, .max_epoch = 4}),
              ElementsAre(8, 6, 4, 4));
}

TEST(ScheduledHyperParamSetter, WarnsWhereItBeginsBehindAnEntryWithAnotherValue) {
  const auto warning = [](int64_t starting_epoch, double x) {
    testing::internal::CaptureStderr();
    values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{2, 5}, {4, 1}}),
              {.steps_per_epoch = 1, .starting_epoch = starting_epoch, .max_epoch = starting_epoch}, x);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(1, 10), "") << "before the first entry";
  EXPECT_EQ(warning(3, 10), "") << "at one, which it sets";
  EXPECT_THAT(warning(4, 10), HasSubstr("x is 5 at this point, and it is 10")) << "behind one";
  EXPECT_EQ(warning(4, 5), "");
  EXPECT_THAT(warning(9, 5), HasSubstr("x is 1 at this point, and it is 5")) << "behind all";
}

TEST(ScheduledHyperParamSetter, SetsAnEntryWhereItBeginsAndKeepsTheValueBehindIt) {
  const auto first_value = [](int64_t starting_epoch, int64_t starting_step) {
    return values_of(
               std::make_shared<ScheduledHyperParamSetter>("x", Entries{{0, 3}, {5, 1}}),
               {.steps_per_epoch = 2, .starting_epoch = starting_epoch, .max_epoch = 9, .starting_step = starting_step})
        .at(0);
  };
  EXPECT_EQ(first_value(1, 0), 3);
  EXPECT_EQ(first_value(7, 0), 10) << "behind an entry";
  EXPECT_EQ(first_value(6, 0), 1) << "at an entry";
  EXPECT_EQ(first_value(5, 2), 1) << "the epoch before is complete";
  EXPECT_EQ(first_value(6, 1), 10) << "in the middle of an epoch";
}

// The checkpoint is of the end of an epoch, before callbacks that act there.
TEST(ScheduledHyperParamSetter, SetsAnEntryThatTheCheckpointDoesNotHaveYet) {
  WithX first;
  first.train({.steps_per_epoch = 2, .max_epoch = 2});
  core::MemoryState saved;
  first.save(saved);
  for (const bool by_steps : {false, true}) {
    WithX resumed;
    resumed.add(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{by_steps ? 4 : 2, 5}},
                                                            by_steps ? ScheduleUnit::kSteps : ScheduleUnit::kEpochs));
    resumed.load(saved);
    resumed.train({.steps_per_epoch = 2,
                   .starting_epoch = resumed.epoch(),
                   .max_epoch = 3,
                   .starting_step = resumed.step_in_epoch()});
    EXPECT_THAT(resumed.noting->values, ElementsAre(5, 5)) << by_steps;
  }
}

TEST(ScheduledHyperParamSetter, RefusesWhatCannotBe) {
  EXPECT_NE(core::message_of([] { ScheduledHyperParamSetter("x", {}); }), "no error");
  EXPECT_NE(core::message_of([] { ScheduledHyperParamSetter("x", {{-1, 1}}); }), "no error");
  EXPECT_NE(core::message_of([] { ScheduledHyperParamSetter("x", {{3, 1}, {3, 2}}); }), "no error");
  EXPECT_THAT(core::message_of(
                  [] {
                    values_of(std::make_shared<ScheduledHyperParamSetter>("y", Entries{{1, 1}}), {1, 1, 1});
                  },
                  core::ErrorCode::kNotFound),
              HasSubstr("unknown hyperparameter 'y'"));
}

TEST(HyperParamSetterWithFunc, GetsEpochAndValue) {
  EXPECT_THAT(values_of(std::make_shared<HyperParamSetterWithFunc>(
                            "x", [](int64_t epochs, double x) { return x / 2 + static_cast<double>(epochs); }),
                        {.steps_per_epoch = 2, .max_epoch = 3}),
              ElementsAre(5, 5, 3.5, 3.5, 3.75, 3.75));
  EXPECT_THAT(values_of(std::make_shared<HyperParamSetterWithFunc>(
                            "x", [](int64_t epochs, double x) { return x + static_cast<double>(epochs); }),
                        {.steps_per_epoch = 1, .starting_epoch = 7, .max_epoch = 8}),
              ElementsAre(16, 23));
}

TEST(HyperParamSetters, GoOnAfterAResumeAsTheFirstRunWould) {
  const auto make = [] {
    auto trainer = std::make_unique<WithX>();
    trainer->add(std::make_shared<HyperParamSetterWithFunc>("x", [](int64_t, double x) { return x / 2; }));
    return trainer;
  };
  const auto whole = make();
  whole->train({.steps_per_epoch = 2, .max_epoch = 3});
  const auto first = make();
  first->train({.steps_per_epoch = 2, .max_epoch = 1});
  core::MemoryState saved;
  first->save(saved);
  const auto second = make();
  second->load(saved);
  second->train({.steps_per_epoch = 2,
                 .starting_epoch = second->epoch(),
                 .max_epoch = 3,
                 .starting_step = second->step_in_epoch()});
  std::vector<double> together = first->noting->values;
  together.insert(together.end(), second->noting->values.begin(), second->noting->values.end());
  EXPECT_EQ(together, whole->noting->values);
}

TEST(HumanHyperParamSetter, FollowsAFileThatSomebodyEdits) {
  const core::TempDir directory;
  const std::string path = directory.file("hyper.txt");
  core::FileSystem& files = core::local_file_system();
  struct Editor : Callback {
    std::function<void(int64_t epoch)> edit;
    std::string name() const override { return "editor"; }
    void before_epoch(Trainer& trainer) override { edit(trainer.epoch()); }
  };
  WithX trainer;
  const auto editor = std::make_shared<Editor>();
  editor->edit = [&](int64_t epoch) {
    // What is written in an epoch counts in the next one.
    if (epoch == 1) files.write_file_atomically(path, "y: 3\n x : 0.5\r\n");
    if (epoch == 3) files.write_file_atomically(path, "");
    if (epoch == 4) files.write_file_atomically(path, std::string("\0\xff\xfe x: \x01", 8));
    if (epoch == 5) files.write_file_atomically(path, "x: 2e400\n");
    if (epoch == 6) files.write_file_atomically(path, "x: 4\nx: 8\n");
    if (epoch == 7) files.remove_file(path);
  };
  trainer.add(editor);
  trainer.add(std::make_shared<HumanHyperParamSetter>("x", path));
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 1, .max_epoch = 9});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(trainer.noting->values, ElementsAre(10, 0.5, 0.5, 0.5, 0.5, 0.5, 8, 8, 8));
  EXPECT_THAT(log, HasSubstr(path + ": x is 0.5 from now on"));
  size_t changes = 0;
  for (size_t at = log.find("from now on"); at != std::string::npos; at = log.find("from now on", at + 1)) ++changes;
  EXPECT_EQ(changes, 2U) << "once a change\n" << log;
  EXPECT_THAT(log, HasSubstr("x stays 0.5: there is no line 'x: VALUE'"));
  EXPECT_THAT(log, HasSubstr("the value of x is no number: got 2e400"));
  size_t warnings = 0;
  for (size_t at = log.find("warning"); at != std::string::npos; at = log.find("warning", at + 1)) ++warnings;
  EXPECT_THAT(log, HasSubstr("x stays 8: the file is gone"));
  EXPECT_EQ(warnings, 3u) << "the empty and the binary file have one problem, and the file stays gone\n" << log;
}

// A file of more than a mebibyte is no person's.
TEST(HumanHyperParamSetter, ReadsNoFileThatIsTooLong) {
  const core::TempDir directory;
  const std::string path = directory.file("hyper.txt");
  const auto value_by = [&path](size_t bytes) {
    std::string text = "x: 0.5\n";
    text.resize(bytes, '\n');
    core::local_file_system().write_file_atomically(path, text);
    return values_of(std::make_shared<HumanHyperParamSetter>("x", path), {.steps_per_epoch = 1}).at(0);
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(value_by(size_t{1} << 20), 0.5);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("x is 0.5 from now on"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(value_by((size_t{1} << 20) + 1), 10);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("x stays 10: file is too large: " + path +
                                                                ": expected at most 1048576 bytes, got 1048577 bytes"));
}

TEST(StatMonitorParamSetter, ActsWhereAStatisticDoesNotImprove) {
  const auto run = [](std::vector<double> losses, StatMonitorParamSetter::Options options) {
    WithX trainer;
    trainer.noting->statistics = std::move(losses);
    options.statistic = "eval/loss";
    options.function = [](double x) { return x / 10; };
    trainer.add(std::make_shared<StatMonitorParamSetter>("x", options));
    trainer.train({.steps_per_epoch = 1, .max_epoch = 8});
    return trainer.noting->values;
  };
  // Falls until the third epoch; epochs 4 and 5 are not below it. Then two epochs of rest, in which nothing falls.
  EXPECT_THAT(run({5, 4, 3, 3.5, 3, 3, 3, 3}, {.last_k = 2}), ElementsAre(10, 10, 10, 10, 10, 1, 1, 0.1));
  EXPECT_THAT(run({5, 4, 3, 2, 1, 0, -1, -2}, {.last_k = 2}), ElementsAre(10, 10, 10, 10, 10, 10, 10, 10));
  EXPECT_THAT(run({5, 4, 3, 2, 1, 0, -1, -2}, {.threshold = 3, .last_k = 2}),
              ElementsAre(10, 10, 10, 1, 1, 0.1, 0.1, 0.01));
  EXPECT_THAT(run({5, 6, 7, 6, 7, 8, 9, 9}, {.last_k = 2, .better = StatMonitorParamSetter::Better::kHigher}),
              ElementsAre(10, 10, 10, 10, 10, 1, 1, 1));
}

TEST(StatMonitorParamSetter, KeepsWhatItHasSeenOverAResume) {
  const auto make = [] {
    auto trainer = std::make_unique<WithX>();
    trainer->noting->statistics = {5, 4, 3, 3.5, 3, 3, 3, 3};
    trainer->add(std::make_shared<StatMonitorParamSetter>(
        "x", StatMonitorParamSetter::Options{
                 .statistic = "eval/loss", .function = [](double x) { return x / 10; }, .last_k = 2}));
    return trainer;
  };
  const auto whole = make();
  whole->train({.steps_per_epoch = 1, .max_epoch = 8});
  std::vector<double> together;
  core::MemoryState saved;
  for (int64_t epoch = 1; epoch <= 8; ++epoch) {
    const auto part = make();
    if (epoch > 1) part->load(saved);
    part->train({.steps_per_epoch = 1, .starting_epoch = epoch, .max_epoch = epoch});
    saved = core::MemoryState();
    part->save(saved);
    together.push_back(part->noting->values.at(0));
    EXPECT_EQ(part->monitors().history("eval/loss").size(), static_cast<size_t>(epoch));
  }
  EXPECT_EQ(together, whole->noting->values);
  EXPECT_EQ(whole->monitors().latest("eval/loss"), 3);
  EXPECT_EQ(whole->monitors().latest("loss"), std::nullopt);
}

TEST(StatMonitorParamSetter, RefusesWhatCannotBe) {
  using Options = StatMonitorParamSetter::Options;
  const auto refusal = [](const std::function<void(Options&)>& change) {
    Options options{.statistic = "eval/loss", .function = [](double x) { return x; }, .threshold = 0.5, .last_k = 1};
    change(options);
    return core::message_of([&] { StatMonitorParamSetter setter("x", options); });
  };
  EXPECT_EQ(refusal([](Options&) {}), "no error");
  EXPECT_THAT(refusal([](Options& options) { options.last_k = 0; }),
              core::Says("a statistic cannot set x so: expected ",
                         "last_k of at least 1, got 'eval/loss', threshold 0.5, last_k 0"));
  EXPECT_NE(refusal([](Options& options) { options.statistic = ""; }), "no error");
  EXPECT_NE(refusal([](Options& options) { options.function = nullptr; }), "no error");
  EXPECT_NE(refusal([](Options& options) { options.threshold = HUGE_VAL; }), "no error");
}

// Half of the way from 8 to 4, in the middle of an epoch, where the value is not set again.
TEST(ScheduledHyperParamSetter, WarnsOfAnotherValueThanThatOfTheLine) {
  const auto warning = [](double x) {
    testing::internal::CaptureStderr();
    values_of(std::make_shared<ScheduledHyperParamSetter>("x", Entries{{0, 8}, {4, 4}}, ScheduleUnit::kEpochs,
                                                          ScheduleInterpolation::kLinear),
              {.steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 3, .starting_step = 1}, x);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warning(8), HasSubstr("x is 6 at this point, and it is 8"));
  EXPECT_EQ(warning(6), "");
}

// A value that was counted already is none of another epoch.
TEST(StatMonitorParamSetter, DoesNothingWithoutANewValue) {
  WithX trainer;
  trainer.noting->statistics = {5, 4, 3, 3};
  trainer.add(std::make_shared<StatMonitorParamSetter>(
      "x", StatMonitorParamSetter::Options{
               .statistic = "eval/loss", .function = [](double x) { return x / 10; }, .last_k = 2}));
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 1, .max_epoch = 8});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(trainer.noting->values, ElementsAre(10, 10, 10, 10, 10, 10, 10, 10));
  EXPECT_THAT(log, HasSubstr("x stays as it is: the monitors have no new value of 'eval/loss'"));
}

}  // namespace
}  // namespace trainyard::train::hyperparameter_setters_test
