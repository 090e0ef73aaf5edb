// Which all-reduces are measured on which layouts.
#include "trainyard/parallel/collectives/all_reduce_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::all_reduce_candidates_test {
namespace {

using ::testing::ElementsAre;

TEST(AllReduceCandidates, InTheOrderOfRanksAreTheChainAndShuffles) {
  EXPECT_THAT(algorithms_in_rank_order(), ElementsAre("shared_memory", "chain", "chain/64K", "chain/1M", "shuffle"));
  EXPECT_THAT(candidates_in_rank_order(layout_of({2, 2}, {0, 1})),
              ElementsAre("chain", "chain/64K", "chain/1M", "shuffle", "shuffle#4"));
  EXPECT_THAT(candidates_in_rank_order(layout_of_ranks(1)), ElementsAre("chain", "chain/64K", "chain/1M", "shuffle"));
}

TEST(AllReduceCandidates, OfSeveralMachinesHaveThoseOfTwoLevels) {
  EXPECT_THAT(candidates_of_specs(layout_of_ranks(4)),
              ElementsAre("ring", "xring", "collective", "collective#2", "rechd", "pscpu", "psgpu", "shuffle#4"));
  EXPECT_THAT(candidates_of_specs(layout_of({2, 2}, {0, 1})),
              ElementsAre("ring", "xring", "collective", "collective#2", "rechd", "pscpu", "psgpu", "shuffle#4",
                          "pscpu/pscpu", "pscpu/xring", "pscpu/rechd", "pscpu#2"));
}

TEST(AllReduceCandidates, RangesHaveTheSettingsOfTheirNames) {
  const auto ordered = ranges_of("shuffle#3:2K:chain/64K:1M:chain/1M", AllReduceOrder::kOfRanks, at::kHalf);
  ASSERT_EQ(ordered.size(), 3U);
  EXPECT_EQ(ordered[0].algorithm, "shuffle");
  EXPECT_EQ(ordered[0].limit_bytes, 2048);
  EXPECT_EQ(ordered[0].shards, 3);
  EXPECT_EQ(ordered[0].chunk_bytes, kChunkBytes);
  EXPECT_EQ(ordered[1].algorithm, "chain");
  EXPECT_EQ(ordered[1].limit_bytes, 1 << 20);
  EXPECT_EQ(ordered[1].shards, 1);
  EXPECT_EQ(ordered[1].chunk_bytes, 64 << 10);
  EXPECT_EQ(ordered[2].chunk_bytes, 1 << 20);
  EXPECT_FALSE(ordered[2].limit_bytes);
  for (const ConfiguredRange& range : ordered) {
    EXPECT_TRUE(range.in_rank_order);
    EXPECT_EQ(range.wire, at::kHalf);
  }
  const auto any = ranges_of("ring#2:2K:xring", AllReduceOrder::kAny);
  ASSERT_EQ(any.size(), 2U);
  EXPECT_EQ(any[0].algorithm, "ring");
  EXPECT_EQ(any[0].limit_bytes, 2048);
  EXPECT_EQ(any[0].shards, 2);
  EXPECT_FALSE(any[0].in_rank_order);
  EXPECT_FALSE(any[0].wire);
}

TEST(AllReduceCandidates, FitLayoutsWithAsManyRanksAsTheyHaveShards) {
  EXPECT_TRUE(fits_layout("shuffle#2", AllReduceOrder::kOfRanks, layout_of_ranks(2)));
  EXPECT_FALSE(fits_layout("shuffle#3", AllReduceOrder::kOfRanks, layout_of_ranks(2)));
  EXPECT_TRUE(fits_layout("ring", AllReduceOrder::kAny, layout_of_ranks(2)));
  EXPECT_FALSE(fits_layout("ring", AllReduceOrder::kOfRanks, layout_of_ranks(2))) << "other bits";
}

TEST(AllReduceCandidates, OtherSettingsAreRefusedByName) {
  EXPECT_THAT(core::message_of([] { ranges_of("chain#2", AllReduceOrder::kOfRanks); }),
              ::testing::HasSubstr("an all-reduce by size cannot have this algorithm: got chain#2"));
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_candidates_test
