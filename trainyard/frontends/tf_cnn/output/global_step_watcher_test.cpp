#include "trainyard/frontends/tf_cnn/output/global_step_watcher.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/train/loop/trainer.h"

namespace trainyard::frontends::global_step_watcher_test {
namespace {

using ::testing::ElementsAre;

// One of several workers: each step of its own goes with `others` steps of the other ones.
class Worker : public train::Trainer {
 public:
  explicit Worker(int64_t others) {
    count_global_steps([others](int64_t before) { return before + 1 + others; });
  }
  void run_step(train::StepView&) override {}
};

TEST(GlobalStepWatcher, TimesTheStepsOfAllWorkersBetweenItsBounds) {
  Worker worker(2);
  std::vector<std::string> lines;
  double now = 0;
  const auto watcher = std::make_shared<GlobalStepWatcher>(
      GlobalStepWatcherOptions{.begin = 5,
                               .end = 17,
                               .global_step = [&] { return worker.global_step(); },
                               .print = [&](std::string_view line) { lines.emplace_back(line); },
                               .clock = [&] { return now += 10; },
                               .time_of_day = [] { return std::string("noon"); }});
  worker.add(watcher);
  worker.train({.steps_per_epoch = 100});
  // Seen at 0, 3, 6, 9, 12, 15 and 18: the first from 5 on is 6, the first from 17 on is 18.
  EXPECT_THAT(lines,
              ElementsAre("Starting real work at step 6 at time noon", "Finishing real work at step 18 at time noon"));
  EXPECT_EQ(worker.own_steps(), 6);
  EXPECT_EQ(watcher->steps(), 12);
  EXPECT_EQ(watcher->seconds(), 10);
  EXPECT_TRUE(watcher->done());
}

TEST(GlobalStepWatcher, BeginsAtOnceWithoutAWarmUp) {
  Worker worker(0);
  int64_t all = 0;
  std::vector<std::string> lines;
  worker.add(std::make_shared<GlobalStepWatcher>(GlobalStepWatcherOptions{
      .end = 2,
      .global_step = [&] { return all == 0 ? 0 : worker.global_step() + all; },
      .print = [&](std::string_view line) { lines.emplace_back(line.substr(0, line.find(" at time"))); }}));
  all = 5;  // steps of others behind the last one of this worker
  worker.train({.steps_per_epoch = 100});
  EXPECT_THAT(lines, ElementsAre("Starting real work at step 5", "Finishing real work at step 5"));
  EXPECT_EQ(worker.global_step(), 1 + 5) << "what all have done, in the end";
}

TEST(GlobalStepWatcher, HasTheTimeOfDayInTheFormOfC) {
  Worker worker(0);
  std::vector<std::string> lines;
  worker.add(std::make_shared<GlobalStepWatcher>(
      GlobalStepWatcherOptions{.end = 1,
                               .global_step = [&] { return worker.global_step(); },
                               .print = [&](std::string_view line) { lines.emplace_back(line); }}));
  worker.train({.steps_per_epoch = 1});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], ::testing::MatchesRegex(".* at time [A-Z][a-z][a-z] [A-Z][a-z][a-z] [ 123][0-9] "
                                                "[0-9][0-9]:[0-9][0-9]:[0-9][0-9] [0-9][0-9][0-9][0-9]"));
}

}  // namespace
}  // namespace trainyard::frontends::global_step_watcher_test
