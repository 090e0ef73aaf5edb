#include "trainyard/train/step/step_timer.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace trainyard::train::step_timer_test {
namespace {

TEST(StepTimer, CommunicationIsWhatTheStepHasAdded) {
  StepTimer timer;
  timer.begin({.total = 10, .waiting = 4}, false);
  timer.add_input(0.5);
  timer.add_input(0.25);
  const StepTimes times = timer.end({.total = 13, .waiting = 5}, 1, false);
  EXPECT_EQ(times.input, 0.75);
  EXPECT_EQ(times.communication, 3);
  EXPECT_EQ(times.waiting, 1);
  EXPECT_EQ(times.update, 0);
  EXPECT_FALSE(times.on_accelerator);
  EXPECT_NEAR(times.compute, times.total - 3.75, 1e-12) << "the rest";
}

// It counts as waiting only where the device had nothing to do.
TEST(StepTimer, InputFetchedAheadIsOfTheNextStepAlone) {
  for (const bool idle : {true, false}) {
    StepTimer timer;
    timer.add_input_ahead(1000);
    timer.begin({}, idle);
    const StepTimes first = timer.end({}, 1, false);
    EXPECT_EQ(first.input, idle ? 1000 : 0);
    EXPECT_GE(first.total, 1000);
    timer.begin({}, idle);
    const StepTimes second = timer.end({}, 1, false);
    EXPECT_EQ(second.input, 0);
    EXPECT_LT(second.total, 500);
  }
}

TEST(StepTimer, UpdatesAreAddedWithoutTheirCommunication) {
  StepTimer timer;
  timer.begin({}, false);
  const auto update = [&timer] {
    timer.end_update(StepTimer::Clock::now() - std::chrono::seconds(3000), /*communication_seconds=*/1000);
  };
  update();
  update();
  const StepTimes both = timer.end({}, 1, false);
  EXPECT_GE(both.update, 4000);
  EXPECT_LT(both.update, 4500);
  EXPECT_NEAR(both.compute, both.total - both.update, 1e-9);
  timer.begin({}, false);
  EXPECT_EQ(timer.end({}, 1, false).update, 0) << "of the step before";
  update();
  timer.forget_update();
  EXPECT_EQ(timer.end({}, 1, false).update, 0);
}

TEST(StepTimer, TheOtherReplicasAreWaitedFor) {
  StepTimer timer;
  timer.begin({.total = 1, .waiting = 1}, false);
  timer.end_replica_0();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const StepTimes one = timer.end({.total = 3, .waiting = 1.5}, 1, false);
  EXPECT_EQ(one.communication, 2);
  EXPECT_EQ(one.waiting, 0.5);
  const StepTimes two = timer.end({.total = 3, .waiting = 1.5}, 2, false);
  EXPECT_GE(two.communication, 2.005);
  EXPECT_NEAR(two.waiting - 0.5, two.communication - 2, 1e-12);
}

TEST(StepTimer, OnAnAcceleratorAllButTheInputIsCompute) {
  StepTimer timer;
  timer.begin({.total = 1}, false);
  timer.add_input(0.5);
  timer.end_update(StepTimer::Clock::now() - std::chrono::seconds(3));
  const StepTimes times = timer.end({.total = 9, .waiting = 2}, 2, true);
  EXPECT_TRUE(times.on_accelerator);
  EXPECT_EQ(times.communication, 0);
  EXPECT_EQ(times.waiting, 0);
  EXPECT_EQ(times.update, 0);
  EXPECT_EQ(times.compute, times.total - 0.5);
}

}  // namespace
}  // namespace trainyard::train::step_timer_test
