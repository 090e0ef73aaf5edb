#include "trainyard/cli/doctor_all_reduce.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"

namespace trainyard::cli::doctor_all_reduce_test {
namespace {

using ::testing::HasSubstr;
using Rows = std::vector<std::pair<std::string, std::string>>;

const std::string kTwoRanks = "order of ranks, 2 ranks on 1 machine: 2*1, Open MPI; X";
const std::vector<parallel::AllReduceTime> kTimes = {{4096, "shared_memory", 2e-6},     {4096, "chain", 14e-6},
                                                     {4096, "chain/64K", 15e-6},        {4096, "shuffle#2", 13e-6},
                                                     {1 << 20, "shared_memory", 25e-6}, {1 << 20, "chain", 1.25e-3}};

TEST(DoctorOfAllReduces, SaysThatNothingWasMeasured) {
  const auto section = all_reduces_section(parallel::AllReduceChoices(""), {});
  EXPECT_EQ(section.title, "All-reduces");
  ASSERT_EQ(section.rows.size(), 1U);
  EXPECT_THAT(section.rows[0].second, HasSubstr("none yet"));
}

TEST(DoctorOfAllReduces, AGoodChoiceIsShownWithItsTimes) {
  parallel::AllReduceChoices choices("");
  choices.keep(kTwoRanks, {"shared_memory", kTimes});
  const Rows rows = all_reduces_section(choices, {}).rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[0].second, HasSubstr("mpirun -n 2 trainyard doctor --all_reduce"));
  EXPECT_EQ(rows[1].first, "shared_memory");
  EXPECT_EQ(rows[1].second, kTwoRanks +
                                " (4K: shared_memory 2.0 us, shuffle#2 13.0 us, chain 14.0 us; "
                                "1M: shared_memory 25.0 us, chain 1.25 ms)");
}

TEST(DoctorOfAllReduces, AWrongChoiceIsNamedByItsKeptTimes) {
  parallel::AllReduceChoices choices("");
  choices.keep(kTwoRanks, {"chain", kTimes});
  const Rows rows = all_reduces_section(choices, {}).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2].first, "slow choice");
  EXPECT_THAT(rows[2].second, HasSubstr("4K: chain takes 14.0 us, shared_memory 2.0 us, which is 7.0 times as fast; "
                                        "remove "));
  EXPECT_THAT(rows[3].second, HasSubstr("1M: chain takes 1.25 ms, shared_memory 25.0 us, which is 50.0 times"));
}

TEST(DoctorOfAllReduces, AChoiceMayTakeOneAndAHalfTimesAsLongAsTheFastest) {
  const auto rows_of = [](double seconds) {
    parallel::AllReduceChoices choices("");
    choices.keep(kTwoRanks, {"chain", {{4096, "shared_memory", 10e-6}, {4096, "chain", seconds}}});
    return all_reduces_section(choices, {}).rows;
  };
  EXPECT_EQ(rows_of(14e-6).size(), 2U);
  const Rows rows = rows_of(16e-6);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].first, "slow choice");
  EXPECT_THAT(rows[2].second, HasSubstr("chain takes 16.0 us, shared_memory 10.0 us, which is 1.6 times as fast; "));
}

TEST(DoctorOfAllReduces, EquallyFastOnesAreInTheOrderOfTheirTimes) {
  parallel::AllReduceChoices choices("");
  choices.keep(kTwoRanks, {"chain", {{4096, "shared_memory", 2e-6}, {4096, "chain", 2e-6}, {4096, "shuffle#2", 2e-6}}});
  const Rows rows = all_reduces_section(choices, {}).rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].second, kTwoRanks + " (4K: shared_memory 2.0 us, chain 2.0 us, shuffle#2 2.0 us)");
}

TEST(DoctorOfAllReduces, WhatIsMeasuredNowCounts) {
  parallel::AllReduceChoices choices("");
  choices.keep(kTwoRanks, {"chain:64K:chain", {{4096, "chain", 1e-6}, {4096, "shared_memory", 2e-6}}});
  choices.keep("any order, 2 ranks", {"ring", {{4096, "ring", 1e-6}}});
  const Rows rows = all_reduces_section(choices, {{kTwoRanks, kTimes}}).rows;
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[1].first, "ring") << "without a check, and fast";
  EXPECT_EQ(rows[2].first, "chain:64K:chain");
  EXPECT_EQ(rows[3].first, "measured now");
  EXPECT_EQ(rows[4].first, "slow choice");
  EXPECT_THAT(rows[4].second, HasSubstr("7.0 times as fast"));
}

TEST(DoctorOfAllReduces, AChoiceThatCannotBeReadIsNamed) {
  parallel::AllReduceChoices choices("");
  choices.keep(kTwoRanks, {"nonsense", kTimes});
  const Rows rows = all_reduces_section(choices, {}).rows;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].first, "unusable choice");
  EXPECT_THAT(rows[2].second, HasSubstr("nonsense"));
}

TEST(DoctorOfAllReduces, AProcessAloneIsToldHowToStartTwo) {
  const CommandResult result = run_command({"doctor", "--all_reduce"});
  EXPECT_EQ(result.code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("mpirun -n 2 trainyard doctor --all_reduce"));
  EXPECT_THAT(run_command({"doctor"}).out, HasSubstr("All-reduces"));
}

}  // namespace
}  // namespace trainyard::cli::doctor_all_reduce_test
