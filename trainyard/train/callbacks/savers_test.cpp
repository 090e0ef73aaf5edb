#include "trainyard/train/callbacks/savers.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::savers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes "val/loss" after each epoch: the next of some values, of which it begins again with each train().
std::shared_ptr<Callback> writing(std::vector<double> values) {
  auto next = std::make_shared<size_t>(0);
  return std::make_shared<RunFunction>(
      "writing",
      [values = std::move(values), next](Trainer& trainer) {
        if (*next >= values.size()) return;
        trainer.monitors().write(
            {.global_step = trainer.global_step(), .phase = "val", .values = {{"loss", values[(*next)++]}}});
      },
      RunFunctionTimes{.before_train = false});
}

const core::TempDir& saver_directory() {
  static const core::TempDir directory;
  return directory;
}
TRAINYARD_CALLBACK_CONFORMANCE(ModelSaver, [] {
  return std::make_shared<ModelSaver>(CheckpointStore(saver_directory().path(), 2));
});
TRAINYARD_CALLBACK_CONFORMANCE(MinSaver, [] {
  return std::make_shared<MinSaver>("val/loss", CheckpointStore(saver_directory().path()));
});

TEST(ModelSaver, SavesAfterEachEpochAndKeepsTheLastOnes) {
  const core::TempDir directory;
  const auto steps = [&](int64_t every) {
    PretendTrainer trainer;
    const std::string path = directory.file(std::to_string(every));
    trainer.add(std::make_shared<PeriodicTrigger>(std::make_shared<ModelSaver>(CheckpointStore(path, 2)),
                                                  Period{.every_k_epochs = every}));
    trainer.train({.steps_per_epoch = 3, .max_epoch = 7});
    std::vector<int64_t> saved;
    for (const CheckpointInfo& info : CheckpointStore(path).list()) saved.push_back(info.global_step);
    return saved;
  };
  EXPECT_THAT(steps(1), ElementsAre(18, 21));
  EXPECT_THAT(steps(3), ElementsAre(9, 18));
  PretendTrainer resumed;
  load_checkpoint(find_checkpoint(directory.file("3")), nullptr, resumed);
  EXPECT_EQ(resumed.epoch(), 6);
  EXPECT_EQ(resumed.step_in_epoch(), 3);
}

TEST(BestSavers, KeepTheLowestAndTheHighestOfAllRuns) {
  const core::TempDir low, high;
  const auto run = [&](std::vector<double> values, int64_t first_step) {
    PretendTrainer trainer;
    trainer.add(writing(values));
    const auto min = std::make_shared<MinSaver>("val/loss", CheckpointStore(low.path()));
    const auto max = std::make_shared<MaxSaver>("val/loss", CheckpointStore(high.path()));
    trainer.add(min);
    trainer.add(max);
    trainer.train({.steps_per_epoch = first_step});
    trainer.train({.steps_per_epoch = 10, .max_epoch = static_cast<int64_t>(values.size()) - 1});
    return std::vector<int64_t>{min->best()->info.global_step, max->best()->info.global_step};
  };
  EXPECT_THAT(run({3, 5, 2, 4}, 10), ElementsAre(30, 20));
  EXPECT_THAT(run({4, 4.5, 1.5}, 11), ElementsAre(31, 20)) << "5 of the first run is still the highest";
  PretendTrainer best;
  load_checkpoint(find_checkpoint(core::join_path(low.path(), "best")), nullptr, best);
  EXPECT_EQ(best.global_step(), 31);
}

TEST(BestSavers, AStatisticWithoutANewValueIsPassedOver) {
  const core::TempDir directory;
  PretendTrainer trainer;
  trainer.add(writing({}));
  const auto saver = std::make_shared<MaxSaver>("val/loss", CheckpointStore(directory.path()));
  trainer.add(saver);
  EXPECT_EQ(saver->name(), "max_saver_val.loss");
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 1, .max_epoch = 3});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("the monitors have no value of 'val/loss'"));
  EXPECT_EQ(log.find("no value"), log.rfind("no value")) << "once";
  EXPECT_FALSE(saver->best());
  EXPECT_FALSE(core::local_file_system().exists(directory.file("best")));
}

// The history of a statistic that somebody keeps comes with the checkpoint; its last value is of step 10, and the
// weights at the end of the next epoch, in which nothing is measured, are of step 20.
TEST(BestSavers, AValueOfTheRunThatIsContinuedIsNotNew) {
  const core::TempDir run, low;
  PretendTrainer first;
  first.monitors().keep("val/loss");
  first.add(writing({3}));
  first.train({.steps_per_epoch = 10});
  CheckpointStore(run.path()).save(first.global_step(), {}, first);

  PretendTrainer resumed;
  const auto saver = std::make_shared<MinSaver>("val/loss", CheckpointStore(low.path()));
  resumed.add(saver);
  load_checkpoint(find_checkpoint(run.path()), nullptr, resumed);
  ASSERT_EQ(resumed.monitors().latest("val/loss"), 3);
  resumed.train({.steps_per_epoch = 10, .starting_epoch = 2, .max_epoch = 2});
  EXPECT_EQ(resumed.global_step(), 20);
  EXPECT_FALSE(saver->best());
}

// Of several kept values the last one is that of the weights.
TEST(BestSavers, TheLastValueOfTheRunThatIsContinuedIsNotNew) {
  const core::TempDir run, low;
  PretendTrainer first;
  first.monitors().keep("val/loss");
  first.add(writing({3, 2}));
  first.train({.steps_per_epoch = 10, .max_epoch = 2});
  CheckpointStore(run.path()).save(first.global_step(), {}, first);

  PretendTrainer resumed;
  const auto saver = std::make_shared<MinSaver>("val/loss", CheckpointStore(low.path()));
  resumed.add(saver);
  load_checkpoint(find_checkpoint(run.path()), nullptr, resumed);
  ASSERT_EQ(resumed.monitors().history("val/loss").size(), 2U);
  resumed.train({.steps_per_epoch = 10, .starting_epoch = 3, .max_epoch = 3});
  EXPECT_EQ(resumed.global_step(), 30);
  EXPECT_FALSE(saver->best());
}

}  // namespace
}  // namespace trainyard::train::savers_test
