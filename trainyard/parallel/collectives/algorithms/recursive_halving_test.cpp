// The messages of recursive halving. What it computes is tested in all_reduce_algorithms_test.cpp and
// all_reduce_order_test.cpp.
#include <string>

#include <gtest/gtest.h>

#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::recursive_halving_test {
namespace {

TEST(RecursiveHalving, ARankSendsLessThanTwiceTheTensorInTwiceTheLogarithmOfMessages) {
  const int64_t chunk = chunk_elements(at::kFloat);
  for (const auto& [ranks, active, rounds] : {std::tuple{2, 2, 1}, {4, 4, 2}, {8, 8, 3}}) {
    for (const int64_t blocks : {1, 3}) {
      const int64_t elements = blocks * active * chunk;
      for (const Traffic& sent : traffic_of_ranks("rechd", ranks, elements)) {
        EXPECT_EQ(sent, (Traffic{2 * rounds * blocks, 2 * 4 * (elements - elements / active)})) << ranks;
      }
    }
  }
}

// With n ranks, 2^k of them active, the first 2 (n - 2^k) form pairs: the second of a pair sends its values once, the
// first the result once more than other ranks.
TEST(RecursiveHalving, RanksBeyondAPowerOfTwoFormPairs) {
  for (const auto& [ranks, active, rounds] : {std::tuple{3, 2, 1}, {5, 4, 2}, {6, 4, 2}, {7, 4, 2}}) {
    const int64_t elements = active * chunk_elements(at::kFloat);
    const std::vector<Traffic> sent = traffic_of_ranks("rechd", ranks, elements);
    for (int rank = 0; rank < ranks; ++rank) {
      const bool in_pair = rank < 2 * (ranks - active), second = in_pair && rank % 2 == 1;
      const Traffic halving{2 * rounds, 2 * 4 * (elements - elements / active)};
      const Traffic expected = second ? Traffic{1, 4 * elements}
                                      : Traffic{halving.messages + in_pair, halving.bytes + in_pair * 4 * elements};
      EXPECT_EQ(sent[static_cast<size_t>(rank)], expected) << ranks << ", rank " << rank;
    }
  }
}

TEST(RecursiveHalving, OddElementsGoToTheFirstHalf) {
  const std::vector<Traffic> sent = traffic_of_ranks("rechd", 2, 5);
  EXPECT_EQ(sent[0], (Traffic{2, 4 * (2 + 3)}));  // the second half's values, the first half's results
  EXPECT_EQ(sent[1], (Traffic{2, 4 * (3 + 2)}));
  // A half without elements has no message.
  EXPECT_EQ(traffic_of_ranks("rechd", 2, 1)[0], (Traffic{1, 4}));
}

}  // namespace
}  // namespace trainyard::parallel::recursive_halving_test
