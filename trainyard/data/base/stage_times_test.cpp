#include "trainyard/data/base/stage_times.h"

#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace trainyard::data::stage_times_test {
namespace {

void work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(StageTimes, InnerTimersCountForThemselves) {
  take_stage_seconds();
  {
    const StageTimer augment(Stage::kAugment);
    work(10);
    {
      const StageTimer decode(Stage::kDecode);
      work(30);
    }
    work(10);
  }
  work(20);  // outside of all: nobody's
  const StageSeconds seconds = take_stage_seconds();
  EXPECT_GE(seconds[Stage::kAugment], 0.020);
  EXPECT_GE(seconds[Stage::kDecode], 0.030);
  EXPECT_LT(seconds[Stage::kAugment], 0.20);
  EXPECT_EQ(seconds.sum(), seconds[Stage::kAugment] + seconds[Stage::kDecode]);
  EXPECT_EQ(take_stage_seconds().sum(), 0);
}

TEST(StageTimes, TakingCountsUpToNow) {
  take_stage_seconds();
  const StageTimer wait(Stage::kWait);
  work(10);
  const double first = take_stage_seconds()[Stage::kWait];
  work(10);
  const double second = take_stage_seconds()[Stage::kWait];
  EXPECT_GE(first, 0.010);
  EXPECT_GE(second, 0.010);
  EXPECT_LT(second, 0.5);
}

TEST(StageTimes, ThreadsCountApart) {
  take_stage_seconds();
  std::thread([] {
    const StageTimer read(Stage::kRead);
    work(5);
  }).join();
  EXPECT_EQ(take_stage_seconds().sum(), 0);
}

TEST(StageTimes, AreAddedAndSubtractedStageByStage) {
  StageSeconds first, second;
  for (int i = 0; i < kStages; ++i) {
    first[static_cast<Stage>(i)] = 10.0 + i;
    second[static_cast<Stage>(i)] = 0.5 * i;
  }
  EXPECT_EQ(first.sum(), 70 + 21);
  const StageSeconds difference = first - second;
  StageSeconds both = first;
  both += second;
  for (int i = 0; i < kStages; ++i) {
    EXPECT_EQ(difference[static_cast<Stage>(i)], 10 + 0.5 * i);
    EXPECT_EQ(both[static_cast<Stage>(i)], 10 + 1.5 * i);
  }
}

TEST(StageTimes, StagesHaveNames) {
  std::string names;
  for (int i = 0; i < kStages; ++i) names += std::string(stage_name(static_cast<Stage>(i))) + " ";
  EXPECT_EQ(names, "read decode resize augment mix collate wait ");
}

}  // namespace
}  // namespace trainyard::data::stage_times_test
