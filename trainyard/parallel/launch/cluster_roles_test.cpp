#include "trainyard/parallel/launch/cluster_roles.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::cluster_roles_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

TEST(ClusterRoles, FillTheHostsInTheirOrder) {
  const PlacedCluster placed =
      place_cluster({.servers = 1, .workers = 3, .controller = true}, {{"240.0.0.1", 2}, {"240.0.0.2", 3}}, 2222);
  EXPECT_THAT(placed.flags,
              ElementsAre("--ps_hosts=240.0.0.1:2222", "--worker_hosts=240.0.0.2:2222,240.0.0.2:2223,240.0.0.2:2224",
                          "--controller_host=240.0.0.1:2223"));
  std::vector<std::string> names, flags;
  for (const ClusterRank& rank : placed.ranks) {
    names.push_back(rank.name);
    flags.push_back(rank.flags.at(0) + " " + rank.flags.at(1));
  }
  EXPECT_THAT(names, ElementsAre("ps 0", "controller", "worker 0", "worker 1", "worker 2"));
  EXPECT_THAT(flags, ElementsAre("--job_name=ps --task_index=0", "--job_name=controller --task_index=0",
                                 "--job_name=worker --task_index=0", "--job_name=worker --task_index=1",
                                 "--job_name=worker --task_index=2"));
}

TEST(ClusterRoles, OfOneMachineListenOnLoopbackAtPortsOfTheirOwn) {
  const PlacedCluster placed = place_cluster({.servers = 2, .workers = 2}, {}, 2222);
  ASSERT_EQ(placed.flags.size(), 2U);
  std::set<std::string> ports;
  for (const std::string& flag : placed.flags) {
    const std::string list = flag.substr(flag.find('=') + 1);
    const size_t comma = list.find(',');
    for (const std::string& address : {list.substr(0, comma), list.substr(comma + 1)}) {
      EXPECT_THAT(address, ::testing::StartsWith("127.0.0.1:"));
      ports.insert(address);
    }
  }
  EXPECT_EQ(ports.size(), 4U);
}

TEST(ClusterRoles, WithoutServersHaveWorkersAlone) {
  const PlacedCluster placed = place_cluster({.workers = 2}, {{"a", 2}}, 2222);
  EXPECT_THAT(placed.flags, ElementsAre("--worker_hosts=a:2222,a:2223"));
  ASSERT_EQ(placed.ranks.size(), 2U);
  EXPECT_EQ(placed.ranks[0].name, "worker 0");
  EXPECT_EQ(placed.ranks[1].name, "worker 1");
}

TEST(ClusterRoles, NeedASlotEach) {
  EXPECT_THAT(core::problem_of([] {
                place_cluster({.servers = 1, .workers = 2}, {{"a", 2}}, 2222);
              }),
              HasSubstr("fewer slots"));
}

TEST(ClusterRoles, OfAHostThatIsNamedTwiceHavePortsOfTheirOwn) {
  const PlacedCluster placed = place_cluster({.servers = 1, .workers = 3}, {{"a", 1}, {"b", 1}, {"a", 2}}, 2222);
  EXPECT_THAT(placed.flags, ElementsAre("--ps_hosts=a:2222", "--worker_hosts=a:2223,a:2224,b:2222"));
}

// The process of an address must be on its host: mpirun begins with this machine.
TEST(ClusterRoles, BeginWithThisMachine) {
  const PlacedCluster placed =
      place_cluster({.servers = 1, .workers = 2}, {{"a", 1}, {"127.0.0.1", 1}, {"b", 1}}, 2222);
  EXPECT_THAT(placed.flags, ElementsAre("--ps_hosts=127.0.0.1:2222", "--worker_hosts=a:2222,b:2222"));
}

TEST(ClusterRoles, RefuseAFirstPortBehindWhichThereAreTooFew) {
  const auto placed = [](uint16_t first_port) {
    return place_cluster({.servers = 1, .workers = 3}, {{"a", 1}, {"b", 3}}, first_port);
  };
  EXPECT_THAT(placed(65533).flags, ElementsAre("--ps_hosts=a:65533", "--worker_hosts=b:65533,b:65534,b:65535"));
  EXPECT_THAT(core::message_of([&] { placed(65534); }),
              core::Says("b: expected a first port of at most 65533, for 3 processes, got 65534",
                         "pass --first_port=65533 or a lower one"));
}

}  // namespace
}  // namespace trainyard::parallel::cluster_roles_test
