// The messages of exchanges within machines and between them. What they compute is tested in
// all_reduce_algorithms_test.cpp and all_reduce_order_test.cpp.
#include <string>

#include <gtest/gtest.h>

#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::two_levels_test {
namespace {

std::vector<Traffic> sent_by(const std::string& name, const RankLayout& layout, int64_t elements, uint64_t number = 0) {
  std::vector<Traffic> sent;
  for (const CollectivePlan& plan : plans_of(name, layout, elements, at::kFloat, number)) {
    sent.push_back(traffic_of(plan, at::kFloat));
  }
  return sent;
}

// Two machines of three ranks and one of two: within a machine all but the first send their values once, and the first
// sends the result to each.
TEST(TwoLevels, OnlyTheFirstRanksOfMachinesSendToOtherMachines) {
  const RankLayout layout = layout_of({1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 2, 2});
  const int64_t elements = 3 * chunk_elements(at::kFloat), bytes = 4 * elements;
  const Traffic other{3, bytes};
  // A ring of three: twice two thirds.
  EXPECT_EQ(sent_by("pscpu/xring", layout, elements), (std::vector<Traffic>{{4 + 6, bytes * 4 / 3 + 2 * bytes},
                                                                            other,
                                                                            other,
                                                                            {4 + 6, bytes * 4 / 3 + 2 * bytes},
                                                                            other,
                                                                            other,
                                                                            {4 + 3, bytes * 4 / 3 + bytes},
                                                                            other}));
  // The second tensor is reduced on the second machine, which sends it to two others.
  EXPECT_EQ(sent_by("pscpu/pscpu", layout, elements, 1),
            (std::vector<Traffic>{
                {3 + 6, 3 * bytes}, other, other, {6 + 6, 4 * bytes}, other, other, {3 + 3, 2 * bytes}, other}));
  // Of three, the first two are a pair: the second sends its values and receives the result.
  const std::vector<Traffic> halved = sent_by("pscpu/rechd", layout, elements);
  EXPECT_EQ(halved[0].bytes, 2 * bytes / 2 + bytes + 2 * bytes);
  EXPECT_EQ(halved[3].bytes, bytes + 2 * bytes);
  EXPECT_EQ(halved[6].bytes, 2 * bytes / 2 + bytes);
}

TEST(TwoLevels, RanksOfOneProcessSendNothingToEachOther) {
  EXPECT_EQ(sent_by("pscpu/pscpu", layout_of({3, 2}, {0, 1}), 10), (std::vector<Traffic>{{1, 40}, {1, 40}}));
  EXPECT_EQ(sent_by("pscpu/pscpu", layout_of({4}, {0}), 10), (std::vector<Traffic>{{0, 0}}));
}

}  // namespace
}  // namespace trainyard::parallel::two_levels_test
