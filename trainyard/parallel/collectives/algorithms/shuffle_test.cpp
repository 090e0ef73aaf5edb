// The places and messages of "shuffle", "pscpu" and "psgpu". What they compute is tested in
// all_reduce_algorithms_test.cpp and all_reduce_order_test.cpp.
#include "trainyard/parallel/collectives/algorithms/shuffle.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::shuffle_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

std::vector<int> places_of(const std::string& name, const std::vector<std::vector<int>>& by_host, int64_t shards,
                           uint64_t number) {
  const auto algorithm = std::dynamic_pointer_cast<const ShuffleAlgorithm>(collective_algorithms().get(name));
  return algorithm->places({by_host}, {.shards = shards, .number = number});
}

// Each rank sends what others reduce; a place also sends its result to all others.
std::vector<Traffic> by_definition(const std::vector<int>& places, int ranks, int64_t elements) {
  const int64_t chunk = chunk_elements(at::kFloat), size = elements / static_cast<int64_t>(places.size());
  std::vector<Traffic> sent(static_cast<size_t>(ranks));
  for (size_t shard = 0; shard < places.size(); ++shard) {
    const int64_t count = shard + 1 == places.size() ? elements - static_cast<int64_t>(shard) * size : size;
    const int64_t messages = (count + chunk - 1) / chunk;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t times = rank == places[shard] ? ranks - 1 : 1;
      sent[static_cast<size_t>(rank)].messages += times * messages;
      sent[static_cast<size_t>(rank)].bytes += times * 4 * count;
    }
  }
  return sent;
}

TEST(Shuffle, APlaceSendsItsShardToAllOthers) {
  for (const int64_t elements : {int64_t{0}, int64_t{2}, int64_t{1001}, 7 * chunk_elements(at::kFloat) + 3}) {
    EXPECT_EQ(traffic_of_ranks("shuffle", 5, elements), by_definition({0}, 5, elements));
    EXPECT_EQ(traffic_of_ranks("shuffle#3", 5, elements), by_definition({0, 1, 3}, 5, elements));
    EXPECT_EQ(traffic_of_ranks("shuffle#5", 5, elements), by_definition({0, 1, 2, 3, 4}, 5, elements));
    EXPECT_EQ(traffic_of_ranks("pscpu", 4, elements, at::kFloat, 1), by_definition({0}, 4, elements));
    EXPECT_EQ(traffic_of_ranks("psgpu", 4, elements, at::kFloat, 6), by_definition({2}, 4, elements));
    EXPECT_EQ(traffic_of_ranks("psgpu#2", 4, elements, at::kFloat, 1), by_definition({1, 3}, 4, elements));
  }
}

TEST(Shuffle, AResultGoesOnceToEachProcess) {
  const auto plans = plans_of("shuffle", layout_of({1, 3}, {0, 0}), 10);
  EXPECT_EQ(traffic_of(plans[0], at::kFloat), (Traffic{1, 40}));
  EXPECT_EQ(traffic_of(plans[1], at::kFloat), (Traffic{3, 120}));  // the values of each of its ranks
}

TEST(Shuffle, PlacesAreCpusOrReplicasAndTakeTurns) {
  const std::vector<std::vector<int>> hosts = {{0, 1, 2}, {3, 4}};
  EXPECT_THAT(places_of("pscpu", hosts, 1, 0), ElementsAre(0));
  EXPECT_THAT(places_of("pscpu", hosts, 1, 3), ElementsAre(3));
  EXPECT_THAT(places_of("pscpu", hosts, 2, 3), ElementsAre(0, 3));
  // Replicas of different machines are neighbours: 0 3 1 4 2.
  EXPECT_THAT(places_of("psgpu", hosts, 1, 1), ElementsAre(3));
  EXPECT_THAT(places_of("psgpu", hosts, 5, 9), ElementsAre(0, 3, 1, 4, 2));
  // tf_cnn_benchmarks' group_device_names() of five devices and groups of two.
  EXPECT_THAT(places_of("psgpu", hosts, 2, 0), ElementsAre(0, 4));
  EXPECT_THAT(places_of("psgpu", hosts, 2, 1), ElementsAre(3, 2));
  EXPECT_THAT(places_of("psgpu", hosts, 2, 2), ElementsAre(1, 0));
}

TEST(Shuffle, MoreShardsThanPlacesAreAnErrorInTheOriginalsWords) {
  const auto error_of = [](const std::string& spec) {
    return core::message_of([&] { make_thread_communicators(2, all_reduce_options(spec).choice()); },
                            core::ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error_of("psgpu#3"), HasSubstr("only 2 devices, but group_size=3"));
  EXPECT_THAT(error_of("shuffle#3"), HasSubstr("only 2 devices, but group_size=3"));
  EXPECT_THAT(error_of("pscpu#2"), HasSubstr("only 1 devices, but group_size=2"));
  EXPECT_THAT(error_of("ring:1k:pscpu#2"), HasSubstr("only 1 devices, but group_size=2"));
}

}  // namespace
}  // namespace trainyard::parallel::shuffle_test
