// The roots and messages of hierarchical_copy. What it computes is tested in all_reduce_algorithms_test.cpp and
// all_reduce_order_test.cpp.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::hierarchical_copy_test {
namespace {

// The first root sends to the second one and to its group, the second to its group, others to their root.
std::vector<Traffic> by_definition(int ranks, int first, int second, int64_t elements) {
  std::vector<Traffic> sent;
  const int half = ranks / 2;
  for (int rank = 0; rank < ranks; ++rank) {
    const int group = rank < half ? half : ranks - half;
    const int64_t times = rank == first || rank == second ? group : 1;
    const int64_t chunk = chunk_elements(at::kFloat);
    sent.push_back({times * ((elements + chunk - 1) / chunk), times * 4 * elements});
  }
  return sent;
}

TEST(HierarchicalCopy, RootsOfDgx1TakeTurns) {
  const int64_t elements = 2 * chunk_elements(at::kFloat) + 1;
  for (int tensor = 0; tensor < 16; ++tensor) {
    for (const int ranks : {2, 4, 6, 8}) {
      EXPECT_EQ(traffic_of_ranks("hierarchical_copy/dgx1", ranks, elements, at::kFloat, static_cast<uint64_t>(tensor)),
                by_definition(ranks, tensor % ranks, (tensor + ranks / 2) % ranks, elements));
    }
  }
  // An odd number: ranks 0 to 1, and 2 to 4.
  const int roots[][2] = {{0, 2}, {1, 3}, {2, 0}, {3, 1}, {4, 0}};
  for (uint64_t tensor = 0; tensor < 5; ++tensor) {
    EXPECT_EQ(traffic_of_ranks("hierarchical_copy/dgx1", 5, elements, at::kFloat, tensor),
              by_definition(5, roots[tensor][0], roots[tensor][1], elements));
  }
  EXPECT_EQ(traffic_of_ranks("hierarchical_copy/dgx1", 1, elements), std::vector<Traffic>(1));
}

TEST(HierarchicalCopy, RootsOfGcpV100TakeTurns) {
  const int roots[][2] = {{0, 5}, {2, 7}, {5, 0}, {7, 2}};
  for (uint64_t tensor = 0; tensor < 8; ++tensor) {
    EXPECT_EQ(traffic_of_ranks("hierarchical_copy/gcp_v100", 8, 100, at::kFloat, tensor),
              by_definition(8, roots[tensor % 4][0], roots[tensor % 4][1], 100));
  }
}

TEST(HierarchicalCopy, GcpV100IsForEightInTheOriginalsWords) {
  for (const int ranks : {1, 4, 9}) {
    EXPECT_THAT(
        core::message_of(
            [&] { make_thread_communicators(ranks, all_reduce_options("hierarchical_copy/gcp_v100").choice()); },
            core::ErrorCode::kInvalidArgument),
        ::testing::HasSubstr("HierarchicalCopy only supports eight devices in gcp_v100"));
  }
}

}  // namespace
}  // namespace trainyard::parallel::hierarchical_copy_test
