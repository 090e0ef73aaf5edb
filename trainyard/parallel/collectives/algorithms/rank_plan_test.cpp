#include "trainyard/parallel/collectives/algorithms/rank_plan.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::rank_plan_test {
namespace {

using ::testing::ElementsAre;

CollectiveRequest request_of(RankLayout layout, int process, at::ScalarType type = at::kFloat) {
  layout.process = process;
  return {.kind = CollectiveCall::Kind::kAllReduce, .elements = 100, .type = type, .layout = layout};
}

std::string text_of(const Place& place) {
  switch (place.memory) {
    case Place::Memory::kNone:
      return "nothing";
    case Place::Memory::kReplica:
      return fmt::format("result {}+{}", place.index, place.begin);
    case Place::Memory::kScratch:
      return fmt::format("sums {}+{}", place.index, place.begin);
    default:
      return "other memory";
  }
}

std::vector<std::string> text_of(const Lane& lane) {
  std::vector<std::string> steps;
  for (const Step& step : lane.steps) {
    const std::string what[] = {
        fmt::format("send {} to {}", text_of(step.from), step.peer),
        fmt::format("receive {} from {}", text_of(step.to), step.peer),
        fmt::format("{} and {} into {}", text_of(step.from), text_of(step.values), text_of(step.to)),
        fmt::format("finish {} into {}", text_of(step.from), text_of(step.to)),
        fmt::format("copy {} into {}", text_of(step.from), text_of(step.to))};
    steps.push_back(what[static_cast<size_t>(step.action)]);
  }
  return steps;
}

// Processes of two, one and two ranks; the third of which holds ranks 3 and 4.
RankPlan example(int process) {
  const RankLayout layout = layout_of({2, 1, 2}, {0, 1, 2});
  RankPlan plan(request_of(layout, process));
  plan.begin_part({{10, 5}});
  plan.reduce({0, 1, 2, 3, 4}, 3, {10, 5});
  plan.finish(3, {10, 5});
  plan.next_phase();
  plan.spread(3, {0, 1, 2, 3, 4}, {10, 5});
  return plan;
}

// Sums 0 and 1 are those of the ranks here, 2 is the memory of the lane.
TEST(RankPlan, AddsInTheGivenOrder) {
  const CollectivePlan plan = example(2).take();
  ASSERT_EQ(plan.lanes.size(), 1U);
  EXPECT_THAT(text_of(plan.lanes[0]),
              ElementsAre("receive sums 2+0 from 0", "receive sums 2+5 from 0", "receive sums 2+10 from 1",
                          "sums 2+0 and sums 2+5 into sums 2+15", "sums 2+15 and sums 2+10 into sums 2+15",
                          "sums 2+15 and sums 0+10 into sums 0+10", "sums 0+10 and sums 1+10 into sums 0+10",
                          "finish sums 0+10 into result 0+10", "send result 0+10 to 0", "send result 0+10 to 1",
                          "copy result 0+10 into result 1+10"));
  EXPECT_EQ(plan.scratch[2].elements, 20);
  EXPECT_GE(plan.lanes[0].window, 3);
  // What a phase sends is there only when the phase before has ended.
  EXPECT_EQ(plan.lanes[0].steps[2].after[0].steps, 0);
  EXPECT_EQ(plan.lanes[0].steps[8].after[0].steps, 8);
  EXPECT_EQ(plan.lanes[0].steps[9].after[0].steps, 8);
}

TEST(RankPlan, AProcessSendsTheValuesOfItsRanksAndReceivesTheResultOnce) {
  EXPECT_THAT(text_of(example(0).take().lanes[0]),
              ElementsAre("send sums 0+10 to 2", "send sums 1+10 to 2", "receive result 0+10 from 2",
                          "copy result 0+10 into result 1+10"));
  EXPECT_THAT(text_of(example(1).take().lanes[0]), ElementsAre("send sums 0+10 to 2", "receive result 0+10 from 2"));
}

// A partial sum is float where the values are of 16 bits.
TEST(RankPlan, ValuesOf16BitsAreConvertedFirst) {
  RankPlan plan(request_of(layout_of({2}, {0}), 0, at::kHalf));
  plan.begin_part({{0, 4}, {8, 0}});
  plan.reduce({0, 1}, 0, {0, 4});
  EXPECT_THAT(text_of(plan.take().lanes[0]),
              ElementsAre("nothing and result 0+0 into sums 0+0", "nothing and result 1+0 into sums 1+0",
                          "sums 0+0 and sums 1+0 into sums 0+0"));
}

TEST(RankPlan, PartsHaveFourLanesAtMost) {
  for (const auto& [parts, lanes] : {std::pair{1, 1}, {3, 3}, {4, 4}, {9, 4}}) {
    RankPlan builder(request_of(layout_of_ranks(2), 0));
    for (int part = 0; part < parts; ++part) {
      builder.begin_part({{part, 1}});
      builder.reduce({0, 1}, 1, {part, 1});
    }
    const CollectivePlan plan = builder.take();
    ASSERT_EQ(plan.lanes.size(), static_cast<size_t>(lanes));
    for (int lane = 0; lane < lanes; ++lane) EXPECT_EQ(plan.lanes[static_cast<size_t>(lane)].stream, lane);
    EXPECT_EQ(plan.lanes[0].steps.size(), parts == 9 ? 3U : 1U);
  }
}

TEST(RankPlan, RangesAreCutIntoPieces) {
  const auto pieces = pieces_of({7, 10}, 4);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[2].begin, 15);
  EXPECT_EQ(pieces[2].count, 2);
  EXPECT_TRUE(pieces_of({7, 0}, 4).empty());
}

}  // namespace
}  // namespace trainyard::parallel::rank_plan_test
