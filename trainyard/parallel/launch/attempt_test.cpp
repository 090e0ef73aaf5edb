#include "trainyard/parallel/launch/attempt.h"

#include <gtest/gtest.h>

namespace trainyard::parallel::attempt_test {
namespace {

RankEnd ended(int code, bool by_launch = false) {
  return {.end = {.kind = ProcessEnd::Kind::kExited, .value = code}, .ended_by_launch = by_launch};
}

TEST(WorstCode, IsThatOfTheFailureNotOfAStop) {
  EXPECT_EQ(worst_exit_code({.ranks = {ended(0), ended(0)}}), 0);
  EXPECT_EQ(worst_exit_code({.ranks = {ended(0), ended(75), ended(0)}}), 75);
  EXPECT_EQ(worst_exit_code({.ranks = {ended(75), ended(1), ended(0)}}), 1);
  EXPECT_EQ(worst_exit_code({.ranks = {ended(1), ended(75), ended(3)}}), 3);
  EXPECT_EQ(worst_exit_code({.ranks = {ended(76), ended(75)}}), 76);
}

TEST(WorstCode, LeavesOutWhatLaunchEndedItself) {
  EXPECT_EQ(worst_exit_code({.ranks = {ended(1), ended(137, true)}}), 1);
  EXPECT_EQ(worst_exit_code({.ranks = {{.end = {.kind = ProcessEnd::Kind::kSignalled, .value = 9}}, ended(1)}}), 137);
  EXPECT_EQ(worst_exit_code({.ranks = {{}}}), 1) << "a rank that was lost";
}

// Whatever the others end with: a rank that waits for it sees that it has failed, or crashes.
TEST(FinalFailure, IsThatOfFlagsOrData) {
  EXPECT_EQ(final_failure({.ranks = {ended(0), ended(75), ended(1), ended(137)}}), std::nullopt);
  EXPECT_EQ(final_failure({.ranks = {ended(1), ended(2), ended(134)}}), 1);
  EXPECT_EQ(final_failure({.ranks = {ended(65), ended(1)}}), 0);
  EXPECT_EQ(final_failure({.ranks = {ended(1), ended(127)}}), 1);
  EXPECT_EQ(final_failure({.ranks = {ended(1), ended(126)}}), 1);
  EXPECT_EQ(final_failure({.ranks = {ended(1), ended(65, true)}}), std::nullopt) << "launch has ended it";
}

TEST(RestartDelay, DoublesUpToAMinute) {
  std::vector<double> delays;
  for (const int failures : {0, 1, 2, 3, 6, 7, 8, 1000000}) delays.push_back(restart_delay(failures));
  EXPECT_EQ(delays, (std::vector<double>{1, 1, 2, 4, 32, 60, 60, 60}));
}

}  // namespace
}  // namespace trainyard::parallel::attempt_test
