// The messages of rings and the order in which they pass the ranks. What they compute is tested in
// all_reduce_algorithms_test.cpp and all_reduce_order_test.cpp.
#include "trainyard/parallel/collectives/algorithms/ring.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::ring_test {
namespace {

using ::testing::ElementsAre;

std::vector<int> order_of(const std::string& name, const std::vector<std::vector<int>>& by_host, int ring,
                          int64_t rings) {
  const auto algorithm = std::dynamic_pointer_cast<const RingAlgorithm>(collective_algorithms().get(name));
  return algorithm->order({by_host}, ring, rings);
}

// A rank at position p sends all segments but p on the way to the sums, and all but p + 1 behind it.
Traffic by_definition(int64_t ranks, int64_t rings, int64_t position_of_even, int64_t position_of_odd,
                      int64_t elements) {
  const int64_t size = (elements + ranks * rings - 1) / (ranks * rings), chunk = chunk_elements(at::kFloat);
  Traffic sent;
  for (int64_t ring = 0; ring < rings; ++ring) {
    const int64_t position = ring % 2 == 0 ? position_of_even : position_of_odd;
    for (const int64_t left_out : {position, (position + 1) % ranks}) {
      for (int64_t segment = 0; segment < ranks; ++segment) {
        if (segment == left_out) continue;
        const int64_t begin = (segment * rings + ring) * size;
        const int64_t count = std::max(int64_t{0}, std::min(begin + size, elements) - begin);
        sent.messages += (count + chunk - 1) / chunk;
        sent.bytes += 4 * count;
      }
    }
  }
  return sent;
}

TEST(Ring, ARankSendsEachSegmentTwiceButItsOwnOnes) {
  const int64_t chunk = chunk_elements(at::kFloat);
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const int64_t rings : {1, 2, 3}) {
      for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{7}, 24 * chunk, 24 * chunk + 5}) {
        const auto sent = traffic_of_ranks("ring#" + std::to_string(rings), ranks, elements);
        for (int rank = 0; rank < ranks; ++rank) {
          const Traffic expected =
              ranks == 1 ? Traffic{} : by_definition(ranks, rings, rank, ranks - 1 - rank, elements);
          EXPECT_EQ(sent[static_cast<size_t>(rank)], expected) << ranks << " " << rings << " " << elements;
        }
      }
    }
  }
}

// The closed form, where the segments are equal: 2 (n - 1) / n of the tensor.
TEST(Ring, SendsLessThanTwiceTheTensor) {
  const int64_t chunk = chunk_elements(at::kFloat);
  for (const std::string name : {"ring", "xring", "xring#2", "collective#2"}) {
    const int64_t rings = name.ends_with("#2") ? 2 : 1;
    for (const Traffic& sent : traffic_of_ranks(name, 4, 24 * chunk)) {
      EXPECT_EQ(sent, (Traffic{2 * 3 * rings * (6 / rings), 2 * 3 * 4 * 6 * chunk})) << name;
    }
  }
}

TEST(Ring, EverySecondOnePassesTheRanksInTheOppositeDirection) {
  EXPECT_THAT(order_of("ring", {{0, 1}, {2, 3}}, 0, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of("ring", {{0, 1}, {2, 3}}, 1, 2), ElementsAre(3, 2, 1, 0));
  // Machines whose ranks are not neighbours are passed once.
  EXPECT_THAT(order_of("ring", {{0, 2}, {1, 3}}, 0, 1), ElementsAre(0, 2, 1, 3));
}

TEST(Xring, BeginsAtDifferentReplicasOfEachMachine) {
  const std::vector<std::vector<int>> two = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  EXPECT_THAT(order_of("xring", two, 0, 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(order_of("xring", two, 1, 2), ElementsAre(2, 3, 0, 1, 6, 7, 4, 5));
  EXPECT_THAT(order_of("xring", two, 3, 4), ElementsAre(3, 0, 1, 2, 7, 4, 5, 6));
  // More rings than replicas.
  EXPECT_THAT(order_of("xring", {{0}, {1}, {2}}, 1, 2), ElementsAre(2, 1, 0));
  EXPECT_THAT(order_of("xring", {{0, 1}, {2, 3}}, 2, 4), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(order_of("xring", {{0, 1}, {2, 3}}, 3, 4), ElementsAre(2, 3, 0, 1));
}

TEST(Collective, InstancesBeginPartsOfTheRanksApart) {
  EXPECT_THAT(order_of("collective", {{0, 1, 2, 3}}, 0, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of("collective", {{0, 1, 2, 3}}, 1, 2), ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(order_of("collective", {{0, 1}}, 4, 5), ElementsAre(0, 1));
}

}  // namespace
}  // namespace trainyard::parallel::ring_test
