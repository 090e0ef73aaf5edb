#include "trainyard/frontends/options/thread_settings.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/cpu_topology.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/machine.h"
#include "trainyard/frontends/options/thread_options.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::frontends::thread_settings_test {
namespace {

using core::CpuList;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ThreadOptions asked(const std::vector<std::string>& arguments) {
  return read_thread_options(core::parse_flags(tf_cnn_flags(), arguments));
}

// On a machine of two packages, nodes too, of two cores of two CPUs; every CPU may be used.
ThreadSettings settings(const std::vector<std::string>& arguments, int replicas, int intra_op_threads) {
  core::SystemFiles machine = core::server(2, 2, 2);
  machine["/sys/devices/system/node/online"] = "0-1\n";
  machine["/sys/devices/system/node/node0/cpulist"] = "0-1,4-5\n";
  machine["/sys/devices/system/node/node1/cpulist"] = "2-3,6-7\n";
  ThreadOptions options = asked(arguments);
  options.intra_op_threads = intra_op_threads;
  return place_threads(options, replicas, 1, core::reading(machine));
}

// The machine of the test has CPUs of its own; `norespect` leaves them out of it.
const std::string kCompact = "--kmp_affinity=norespect,granularity=fine,compact";

TEST(ThreadOptions, AreThoseOfTheFlags) {
  const ThreadOptions plain = asked({}),
                      given = asked({"--num_intra_threads=3", "--use_numa_affinity", "--kmp_affinity=scatter",
                                     "--kmp_settings=1", "--kmp_blocktime=7"});
  EXPECT_EQ(plain.intra_op_threads, 0) << "all cores";
  EXPECT_FALSE(plain.use_numa_affinity || plain.print);
  EXPECT_FALSE(plain.affinity.has_value());
  EXPECT_FALSE(plain.spin_milliseconds.has_value());
  EXPECT_EQ(given.intra_op_threads, 3);
  EXPECT_TRUE(given.use_numa_affinity && given.print);
  EXPECT_TRUE(given.affinity.has_value());
  EXPECT_EQ(given.spin_milliseconds, 7);
}

TEST(SpinCount, ComesFromTheFlagOrFromMkl) {
  EXPECT_EQ(wanted_spin_count(asked({})), std::nullopt);
  EXPECT_EQ(wanted_spin_count(asked({"--kmp_blocktime=0"})), "0");
  EXPECT_EQ(wanted_spin_count(asked({"--kmp_blocktime=200"})), "20000000");
  EXPECT_EQ(wanted_spin_count(asked({"--mkl"})), "0");
  EXPECT_EQ(wanted_spin_count(asked({"--mkl", "--kmp_blocktime=1"})), "100000");
  EXPECT_EQ(wanted_spin_count(asked({"--nomkl"})), std::nullopt);
}

TEST(ThreadSettings, PlaceNothingUnlessAsked) {
  const ThreadSettings plain = settings({}, 2, 8);
  EXPECT_FALSE(plain.affinity);
  EXPECT_FALSE(plain.print);
  EXPECT_EQ(plain.intra_op_threads, 8);
  ASSERT_EQ(plain.replica.size(), 2U);
  for (const core::ThreadPlacement& placement : {plain.replica[0], plain.replica[1], plain.main}) {
    EXPECT_THAT(placement.cpus, IsEmpty());
    EXPECT_THAT(placement.places, IsEmpty());
    EXPECT_FALSE(placement.memory_node);
  }
}

TEST(ThreadSettings, MklMakesTheDefaultsCount) {
  const ThreadSettings mkl = settings({"--mkl"}, 1, 1);
  ASSERT_TRUE(mkl.affinity);
  EXPECT_EQ(mkl.affinity->type, core::Affinity::Type::kCompact);
  EXPECT_EQ(mkl.affinity->permute, 1);
  EXPECT_TRUE(mkl.print);
  EXPECT_FALSE(settings({"--mkl", "--kmp_settings=0"}, 1, 1).print);
  EXPECT_TRUE(settings({"--kmp_settings=1"}, 1, 1).print);
}

TEST(ThreadSettings, ReplicasTakePlacesOneAfterTheOther) {
  const ThreadSettings two = settings({kCompact}, 2, 4);
  EXPECT_THAT(two.replica[0].places, ElementsAre(CpuList{0}, CpuList{4}));
  EXPECT_THAT(two.replica[1].places, ElementsAre(CpuList{1}, CpuList{5}));
  EXPECT_THAT(two.main.places, ElementsAre(CpuList{0}, CpuList{4}, CpuList{1}, CpuList{5}));
  const ThreadSettings many = settings({kCompact + ",0,6"}, 3, 3);
  EXPECT_THAT(many.replica[1].places, ElementsAre(CpuList{7}));
  EXPECT_THAT(many.replica[2].places, ElementsAre(CpuList{0}));
  EXPECT_THAT(settings({"--kmp_affinity=none"}, 1, 4).replica[0].places, IsEmpty());
  EXPECT_THROW(settings({"--kmp_affinity=near"}, 1, 4), core::Error);
}

TEST(ThreadSettings, ReplicasGoToNodesInTurn) {
  const ThreadSettings three = settings({"--use_numa_affinity", "--kmp_affinity=norespect,none"}, 3, 6);
  ASSERT_EQ(three.replica.size(), 3U);
  EXPECT_THAT(three.replica[0].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(three.replica[1].cpus, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(three.replica[2].cpus, ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(three.replica[1].memory_node, 1);
  EXPECT_EQ(three.replica[2].memory_node, 0);
  EXPECT_EQ(three.intra_op_threads, 6);
  EXPECT_THAT(three.main.cpus, IsEmpty());
  // One replica has one node, and no more threads than that has CPUs.
  EXPECT_EQ(settings({"--use_numa_affinity", "--kmp_affinity=norespect,none"}, 1, 8).intra_op_threads, 4);
}

TEST(ThreadSettings, PlacesAreThoseOfTheReplicasNode) {
  const ThreadSettings three = settings({"--use_numa_affinity", kCompact}, 3, 6);
  EXPECT_THAT(three.replica[0].places, ElementsAre(CpuList{0}, CpuList{4}));
  EXPECT_THAT(three.replica[1].places, ElementsAre(CpuList{2}, CpuList{6}));
  EXPECT_THAT(three.replica[2].places, ElementsAre(CpuList{1}, CpuList{5}));
}

TEST(ThreadSettings, EachReplicaHasAPlaceWhereTheyAreMoreThanTheThreads) {
  const ThreadSettings four = settings({kCompact}, 4, 2);
  EXPECT_THAT(four.replica[0].places, ElementsAre(CpuList{0}));
  EXPECT_THAT(four.replica[3].places, ElementsAre(CpuList{5}));
  const ThreadSettings on_nodes = settings({"--use_numa_affinity", kCompact}, 4, 2);
  EXPECT_EQ(on_nodes.intra_op_threads, 2);
  EXPECT_THAT(on_nodes.replica[0].places, ElementsAre(CpuList{0}));
  EXPECT_THAT(on_nodes.replica[2].places, ElementsAre(CpuList{4}));
  EXPECT_THAT(on_nodes.replica[3].places, ElementsAre(CpuList{6}));
}

// gcc's runtime reads these when it is loaded, long before this test sets them.
TEST(ThreadSettings, AnEnvironmentThatPlacesThreadsIsNamed) {
  for (const char* const name : {"OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) != nullptr) continue;
    ::setenv(name, "0", 1);
    const std::string refused = core::message_of([] { settings({kCompact}, 1, 1); });
    const std::string on_nodes = core::message_of([] { settings({"--use_numa_affinity"}, 1, 1); });
    const std::vector<std::string> lines = settings({}, 1, 2).lines();
    ::unsetenv(name);
    EXPECT_EQ(refused, std::string("the environment places threads, too: got ") + name +
                           "=0; unset it, or leave the flags of placement out");
    EXPECT_EQ(on_nodes, refused);
    EXPECT_EQ(lines.front(), "threads: 2 for operations, shared by 1 replica; 1 for the input");
    EXPECT_THAT(lines, testing::Contains(std::string("threads: ") + name + "=0"));
  }
}

TEST(ThreadSettings, OneNodeIsLeftAsItIs) {
  testing::internal::CaptureStderr();
  const ThreadSettings one = place_threads({.intra_op_threads = 2, .use_numa_affinity = true}, 2, 1, core::reading({}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("this machine has one NUMA node"));
  EXPECT_FALSE(one.replica[0].memory_node);
  EXPECT_THAT(one.replica[0].cpus, IsEmpty());
}

TEST(ThreadSettings, LinesSayWhereEverythingRuns) {
  const std::vector<std::string> lines = settings({"--use_numa_affinity", kCompact}, 2, 4).lines();
  EXPECT_EQ(lines.front(), "threads: 4 for operations, shared by 2 replicas; 1 for the input");
  EXPECT_THAT(lines, testing::Contains("threads: replica 0 CPUs 0 | 4, memory of node 0"));
  EXPECT_THAT(lines, testing::Contains("threads: replica 1 CPUs 2 | 6, memory of node 1"));
  EXPECT_EQ(lines.back(), "threads: evaluation CPUs 0 | 4 | 1 | 5");
  const std::vector<std::string> of_nodes =
      settings({"--use_numa_affinity", "--kmp_affinity=norespect,none"}, 2, 4).lines();
  EXPECT_THAT(of_nodes, testing::Contains("threads: replica 1 anywhere on CPUs 2-3,6-7, memory of node 1"));
  EXPECT_EQ(of_nodes.back(), "threads: evaluation anywhere on CPUs " + core::format_cpu_list(core::allowed_cpus()));
}

}  // namespace
}  // namespace trainyard::frontends::thread_settings_test
