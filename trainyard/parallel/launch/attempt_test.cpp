#include "trainyard/parallel/launch/attempt.h"

#include <gtest/gtest.h>

namespace trainyard::parallel {
namespace {

RankEnd ended(int code, bool by_launch = false) {
  return {.end = {.kind = ProcessEnd::Kind::kExited, .value = code}, .ended_by_launch = by_launch};
}

TEST(WorstCode, IsThatOfTheFailureNotOfAStop) {
  EXPECT_EQ(worst_code({.ranks = {ended(0), ended(0)}}), 0);
  EXPECT_EQ(worst_code({.ranks = {ended(0), ended(75), ended(0)}}), 75);
  EXPECT_EQ(worst_code({.ranks = {ended(75), ended(1), ended(0)}}), 1);
  EXPECT_EQ(worst_code({.ranks = {ended(1), ended(75), ended(3)}}), 3);
  EXPECT_EQ(worst_code({.ranks = {ended(76), ended(75)}}), 76);
}

TEST(WorstCode, LeavesOutWhatLaunchEndedItself) {
  EXPECT_EQ(worst_code({.ranks = {ended(1), ended(137, true)}}), 1);
  EXPECT_EQ(worst_code({.ranks = {{.end = {.kind = ProcessEnd::Kind::kSignalled, .value = 9}}, ended(1)}}), 137);
  EXPECT_EQ(worst_code({.ranks = {{}}}), 1) << "a rank that was lost";
}

}  // namespace
}  // namespace trainyard::parallel
