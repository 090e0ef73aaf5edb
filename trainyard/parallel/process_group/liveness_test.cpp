#include "trainyard/parallel/process_group/liveness.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::liveness_test {
namespace {

using core::Error, core::ErrorCode, std::chrono::milliseconds, std::chrono::seconds;

// Three ranks whose clock the test moves. A step may take 10 s, the start 100 s.
class LivenessTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  // Lets `time` pass in which these ranks say what they do, and returns the first verdict.
  std::optional<Error> pass(milliseconds time, const std::vector<int>& ranks = {0, 1, 2}) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(100)) {
      now_ += milliseconds(100);
      for (const int rank : ranks) liveness_.heard(rank, does_[static_cast<size_t>(rank)], now_);
      if (auto error = liveness_.judge(now_)) return error;
    }
    return std::nullopt;
  }
  Activity& does(int rank) { return does_[static_cast<size_t>(rank)]; }
  static Activity at(int64_t step, std::string operation, int64_t begun, int64_t done) {
    return {.operation = std::move(operation), .step = step, .begun = begun, .done = done};
  }

  Liveness::Time now_{};
  Liveness liveness_{kRanks, {.start = seconds(100), .step = seconds(10)}, now_};
  std::vector<Activity> does_{3};
};

TEST_F(LivenessTest, WhoHasNeverComeIsNamed) {
  EXPECT_FALSE(pass(seconds(99), {0}));
  const auto error = pass(seconds(2), {0});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(*error, "nothing from rank 1, 2")) << error->what();
}

TEST_F(LivenessTest, RanksThatWorkMayTakeAnyTime) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(5, "compute", 7, 7);
  EXPECT_FALSE(pass(seconds(1000)));
}

// Its silence means nothing, it keeps no rank waiting, and the ones that are left are judged as before.
TEST_F(LivenessTest, ARankThatHasLeftIsNotJudged) {
  does(0) = at(5, "compute", 7, 7);
  does(1) = at(5, "compute", 7, 7);
  does(2) = at(-1, "start", 0, 0);
  EXPECT_FALSE(pass(seconds(1)));
  liveness_.left(2);
  EXPECT_FALSE(pass(seconds(1000), {0, 1}));
  does(0) = at(6, "all-reduce", 8, 7);
  const auto error = pass(seconds(12), {0, 1});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not go on: step 5, compute")) << error->what();
}

TEST(Liveness, RanksHaveAnotherNameWhereTheyAreOtherProcesses) {
  Liveness liveness(2, {.start = seconds(100), .step = seconds(10)}, {}, "worker");
  const Activity pushes{.operation = "push", .step = 5, .begun = 8, .done = 7};
  for (const int worker : {0, 1}) liveness.heard(worker, pushes, {});
  liveness.heard(0, pushes, Liveness::Time(seconds(11)));
  const auto error = liveness.judge(Liveness::Time(seconds(11)));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "worker 1 does not answer")) << error->what();
  EXPECT_TRUE(says(rank_died(2, pushes, "worker"), "worker 2 has died: step 5, push"));
}

TEST_F(LivenessTest, ASilentRankIsFrozenBehindTheDeadline) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(5, "all-reduce", 8, 7);
  does(1) = at(5, "compute", 7, 7);
  EXPECT_FALSE(pass(seconds(1)));
  EXPECT_FALSE(pass(seconds(9), {0, 2}));
  const auto error = pass(seconds(2), {0, 2});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kPeerFailed);
  EXPECT_TRUE(says(*error, "rank 1 does not answer: step 5, compute")) << error->what();
  EXPECT_TRUE(says(*error, "no heart beat for 10 s")) << error->what();
}

TEST_F(LivenessTest, AClosedConnectionIsTheCauseWhereAllOthersAreHeard) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(5, "all-reduce", 8, 7);
  EXPECT_FALSE(pass(seconds(1)));
  liveness_.closed(1, now_);
  const auto error = pass(milliseconds(100), {0, 2});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 has died: step 5, all-reduce")) << error->what();
}

// Rank 0 has waited for it, and ends before its deadline is over.
TEST_F(LivenessTest, WhoWasSilentBeforeAConnectionClosedIsTheCause) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(5, "all-reduce", 8, 7);
  EXPECT_FALSE(pass(seconds(1)));
  EXPECT_FALSE(pass(seconds(2), {0, 2}));
  liveness_.closed(0, now_);
  EXPECT_FALSE(pass(seconds(7), {2}));
  const auto error = pass(seconds(2), {2});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not answer")) << error->what();
}

TEST_F(LivenessTest, WhoIsHeardAgainIsNotTheCauseOfAClosedConnection) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(5, "compute", 8, 8);
  EXPECT_FALSE(pass(seconds(1)));
  EXPECT_FALSE(pass(seconds(2), {0, 2}));
  liveness_.closed(0, now_);
  EXPECT_FALSE(pass(seconds(1), {2}));
  const auto error = pass(seconds(1), {1, 2});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 0 has died")) << error->what();
}

TEST_F(LivenessTest, OfTwoClosedConnectionsTheFirstIsTheCause) {
  EXPECT_FALSE(pass(seconds(1)));
  liveness_.closed(2, now_);
  liveness_.closed(0, now_ + milliseconds(1));
  const auto error = pass(milliseconds(100), {1});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 2 has died")) << error->what();
}

// A rank freezes behind its first steps, before a heartbeat has told of them.
TEST_F(LivenessTest, AStepThatAnotherMessageTellsOfEndsTheStart) {
  EXPECT_FALSE(pass(seconds(1)));
  for (int rank = 0; rank < kRanks; ++rank) {
    does(rank).step = 2;
    liveness_.begun(rank, 2);
  }
  EXPECT_FALSE(pass(seconds(9), {0, 2}));
  const auto error = pass(seconds(2), {0, 2});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not answer: step 2, compute")) << error->what();
}

// It had begun the meeting when it froze: it is not behind.
TEST_F(LivenessTest, ARankFrozenWhileItWaitsIsNamedToo) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(5, "all-reduce", 8, 7);
  EXPECT_FALSE(pass(seconds(1)));
  const auto error = pass(seconds(30), {0, 1});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 2 does not answer")) << error->what();
}

TEST_F(LivenessTest, WhoLivesAndDoesNotGoOnIsNamed) {
  does(0) = at(6, "all-reduce", 8, 7);
  does(1) = at(6, "input", 7, 7);
  does(2) = at(6, "all-reduce", 8, 7);
  EXPECT_FALSE(pass(seconds(10)));
  const auto error = pass(seconds(1));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not go on: step 6, input")) << error->what();
  EXPECT_TRUE(says(*error, "waited 10 s for it in all-reduce")) << error->what();
  EXPECT_TRUE(says(*error, "look at what rank 1 said last")) << error->what();
}

// One of its threads waits in a meeting of its own that the others have behind them.
TEST_F(LivenessTest, OfRanksThatAllWaitItIsTheOneThatHasBegunTheLeast) {
  does(0) = at(6, "all-reduce", 9, 8);
  does(1) = at(6, "all-reduce", 9, 8);
  does(2) = at(6, "statistics", 8, 7);
  const auto error = pass(seconds(12));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 2 does not go on: step 6, statistics")) << error->what();
}

TEST_F(LivenessTest, ADelayBelowTheDeadlinePasses) {
  for (int step = 0; step < 5; ++step) {
    does(0) = at(step, "all-reduce", step + 1, step);
    does(1) = at(step, "input", step, step);
    does(2) = does(0);
    EXPECT_FALSE(pass(seconds(9)));
    for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(step, "update", step + 1, step + 1);
    EXPECT_FALSE(pass(seconds(1)));
  }
}

TEST_F(LivenessTest, UntilAllHaveBegunAStepTheStartsDeadlineCounts) {
  does(0) = at(0, "all-reduce", 3, 2);
  does(1) = at(-1, "data", 2, 2);
  does(2) = does(0);
  EXPECT_FALSE(pass(seconds(99)));
  const auto error = pass(seconds(3));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not go on: data: ")) << error->what();
}

TEST_F(LivenessTest, TheFirstStepHasTheDeadlineOfAStep) {
  does(0) = at(0, "all-reduce", 3, 2);
  does(1) = at(0, "input", 2, 2);
  does(2) = does(0);
  EXPECT_FALSE(pass(seconds(9)));
  const auto error = pass(seconds(3));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not go on: step 0, input")) << error->what();
}

// Rank 2 waits for rank 1, too, though it has begun less than all others.
TEST_F(LivenessTest, WhoWorksIsNamedBeforeWhoWaits) {
  does(0) = at(6, "all-reduce", 9, 8);
  does(1) = at(6, "input", 9, 9);
  does(2) = at(6, "statistics", 8, 7);
  EXPECT_FALSE(pass(seconds(9)));
  const auto error = pass(seconds(3));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 1 does not go on: step 6, input")) << error->what();
}

// Rank 1 is held in a meeting that is over; rank 0, which needs it elsewhere, is not to blame.
TEST_F(LivenessTest, WhoWaitsElsewhereIsNotNamed) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(6, "step", 9, 8);
  does(0) = at(6, "step", 9, 9);
  does(0).elsewhere = 1;
  EXPECT_FALSE(pass(seconds(30)));
  does(0).elsewhere = 0;
  const auto error = pass(seconds(1));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "rank 0 does not go on: step 6, step")) << error->what();
}

TEST_F(LivenessTest, AnExchangeThatStandsStillEnds) {
  for (int rank = 0; rank < kRanks; ++rank) does(rank) = at(6, "all-reduce", 8, 7);
  EXPECT_FALSE(pass(seconds(12)));
  const auto error = pass(seconds(3));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "what they exchange does not arrive")) << error->what();
}

// Two workers at their own pace: no one waits for the other.
class OwnPaceTest : public ::testing::Test {
 protected:
  // Lets `time` pass. Worker 0 gets something done at each heartbeat, worker 1 only where `works` says so.
  std::optional<Error> pass(milliseconds time, bool works = false) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(100)) {
      now_ += milliseconds(100);
      liveness_.heard(0, {.operation = "step", .step = 9}, now_, ++turns_);
      if (works) ++work_;
      liveness_.heard(1, does_, now_, work_);
      if (auto error = liveness_.judge(now_)) return error;
    }
    return std::nullopt;
  }

  Liveness::Time now_{};
  Liveness liveness_{2, {.start = seconds(100), .step = seconds(10)}, now_, "worker", RankPace::kOwn};
  Activity does_{.operation = "save", .step = 7};
  uint64_t turns_ = 0, work_ = 5;
};

TEST_F(OwnPaceTest, WhoGetsNothingDoneIsNamedAlthoughNoOneWaits) {
  EXPECT_FALSE(pass(seconds(10)));
  const auto error = pass(seconds(1));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kPeerFailed);
  EXPECT_TRUE(says(*error, "worker 1 does not go on: step 7, save")) << error->what();
  EXPECT_TRUE(says(*error, "it has got nothing done for 10 s")) << error->what();
}

TEST_F(OwnPaceTest, ALongTaskThatMakesProgressPasses) {
  EXPECT_FALSE(pass(seconds(1000), true));
  EXPECT_FALSE(pass(seconds(9)));
  EXPECT_FALSE(pass(milliseconds(100), true));
  EXPECT_FALSE(pass(seconds(9)));
  EXPECT_TRUE(pass(seconds(2)));
}

// Its deadline begins when the wait is over.
TEST_F(OwnPaceTest, WhoWaitsElsewhereIsNotNamed) {
  does_.elsewhere = 1;
  EXPECT_FALSE(pass(seconds(1000)));
  does_.elsewhere = 0;
  EXPECT_FALSE(pass(seconds(9)));
  const auto error = pass(seconds(2));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "worker 1 does not go on")) << error->what();
}

TEST_F(OwnPaceTest, BeforeItsFirstStepAWorkerHasTheDeadlineOfTheStart) {
  does_.step = -1;
  EXPECT_FALSE(pass(seconds(99)));
  const auto error = pass(seconds(2));
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "worker 1 does not go on: save")) << error->what();
}

// A push that overtakes heartbeats tells of a step, and of nothing else.
TEST_F(OwnPaceTest, AStepThatAnotherMessageTellsOfEndsNoWait) {
  does_.elsewhere = 1;
  EXPECT_FALSE(pass(seconds(1)));
  liveness_.begun(1, 8);
  EXPECT_EQ(liveness_.last(1).elsewhere, 1);
  EXPECT_EQ(liveness_.last(1).step, 8);
}

TEST_F(OwnPaceTest, WhoHasLeftIsNotJudged) {
  EXPECT_FALSE(pass(seconds(1)));
  liveness_.left(1);
  EXPECT_FALSE(pass(seconds(1000)));
}

// Whether it works is not known: it is frozen, and that is what is said.
TEST_F(OwnPaceTest, WhoIsSilentIsFrozen) {
  EXPECT_FALSE(pass(seconds(1)));
  for (int beat = 0; beat < 99; ++beat) {
    now_ += milliseconds(100);
    liveness_.heard(0, {.operation = "step", .step = 9}, now_, ++turns_);
    EXPECT_FALSE(liveness_.judge(now_));
  }
  now_ += milliseconds(200);
  const auto error = liveness_.judge(now_);
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(*error, "worker 1 does not answer")) << error->what();
}

TEST(HeartBeat, IsATenthOfTheDeadlineWithinBounds) {
  EXPECT_EQ(heartbeat_interval({}), milliseconds(200));
  EXPECT_EQ(heartbeat_interval({.start = seconds(100), .step = seconds(1)}), milliseconds(100));
  EXPECT_EQ(heartbeat_interval({.start = milliseconds(20), .step = seconds(1)}), milliseconds(10));
}

}  // namespace
}  // namespace trainyard::parallel::liveness_test
