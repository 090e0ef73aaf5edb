#include "trainyard/core/system/cpu_topology.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/machine.h"

namespace trainyard::core::cpu_topology_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;

CpuList first(int count) {
  CpuList cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

TEST(CpuLists, AreReadAndWrittenInTheKernelsForm) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (CpuList{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5,2-3,3"), (CpuList{2, 3, 5}));
  EXPECT_EQ(parse_cpu_list("\n"), CpuList{});
  for (const char* wrong : {"a", "1-", "-1", "3-2", "1,", ",1", "1 2", "0-99999999"}) {
    EXPECT_FALSE(parse_cpu_list(wrong)) << wrong;
  }
  EXPECT_EQ(format_cpu_list({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(format_cpu_list({}), "");
}

TEST(CpuPositions, CountPackagesCoresAndThreads) {
  EXPECT_THAT(cpu_positions(first(8), reading(server(2, 2, 2))),
              ElementsAre(FieldsAre(0, 0, 0, 0), FieldsAre(1, 0, 1, 0), FieldsAre(2, 1, 0, 0), FieldsAre(3, 1, 1, 0),
                          FieldsAre(4, 0, 0, 1), FieldsAre(5, 0, 1, 1), FieldsAre(6, 1, 0, 1), FieldsAre(7, 1, 1, 1)));
}

TEST(CpuPositions, CountAmongTheGivenOnesAlone) {
  EXPECT_THAT(cpu_positions({3, 5, 7}, reading(server(2, 2, 2))),
              ElementsAre(FieldsAre(3, 1, 0, 0), FieldsAre(5, 0, 0, 0), FieldsAre(7, 1, 0, 1)));
}

TEST(CpuPositions, AreCoresOfOnePackageWhereTheSystemSaysNothing) {
  EXPECT_THAT(cpu_positions({2, 4}, reading({})), ElementsAre(FieldsAre(2, 0, 0, 0), FieldsAre(4, 0, 1, 0)));
}

TEST(NumaNodes, AreThoseWithCpusThatMayBeUsed) {
  const ReadText read = reading({{"/sys/devices/system/node/online", "0-3\n"},
                                 {"/sys/devices/system/node/node0/cpulist", "0-1,4-5\n"},
                                 {"/sys/devices/system/node/node1/cpulist", "\n"},  // memory alone
                                 {"/sys/devices/system/node/node2/cpulist", "2-3,6-7\n"},
                                 {"/sys/devices/system/node/node3/cpulist", "8-9\n"}});
  const auto nodes = numa_nodes({0, 1, 2, 7}, read);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].number, 0);
  EXPECT_EQ(nodes[0].cpus, (CpuList{0, 1}));
  EXPECT_EQ(nodes[1].number, 2);
  EXPECT_EQ(nodes[1].cpus, (CpuList{2, 7}));
}

TEST(NumaNodes, AreOneWhereTheSystemHasNone) {
  const auto nodes = numa_nodes({1, 2}, reading({}));
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(nodes[0].number, 0);
  EXPECT_EQ(nodes[0].cpus, (CpuList{1, 2}));
}

TEST(Cpus, OnesAllowedAreOnline) {
  const CpuList online = online_cpus();
  ASSERT_FALSE(allowed_cpus().empty());
  for (const int cpu : allowed_cpus()) EXPECT_THAT(online, ::testing::Contains(cpu));
  EXPECT_EQ(online_cpus(reading(server(2, 2, 2))), first(8));
}

TEST(CpuLists, HaveNumbersBelow65536) {
  EXPECT_EQ(parse_cpu_number("0"), 0);
  EXPECT_EQ(parse_cpu_number("65535"), 65535);
  for (const char* wrong : {"65536", "-1", "", "1x", "99999999999"}) EXPECT_FALSE(parse_cpu_number(wrong)) << wrong;
  EXPECT_EQ(parse_cpu_list("65534-65535"), (CpuList{65534, 65535}));
  EXPECT_EQ(parse_cpu_list("7-7 \n"), CpuList{7});
  EXPECT_EQ(format_cpu_list({4}), "4");
  EXPECT_EQ(format_cpu_list({4, 5}), "4-5");
  EXPECT_EQ(format_cpu_list({0, 2, 4}), "0,2,4");
}

// "-1" is the kernel's word for "unknown".
TEST(CpuPositions, APackageThatIsUnknownIsTheFirst) {
  SystemFiles files = server(1, 2, 1);
  for (const char* cpu : {"0", "1"}) {  // that of one, and of both
    files[std::string("/sys/devices/system/cpu/cpu") + cpu + "/topology/physical_package_id"] = "-1\n";
    EXPECT_THAT(cpu_positions(first(2), reading(files)), ElementsAre(FieldsAre(0, 0, 0, 0), FieldsAre(1, 0, 1, 0)));
  }
  files.erase("/sys/devices/system/cpu/cpu0/topology/core_id");
  EXPECT_THAT(cpu_positions({1, 0}, reading(files)), ElementsAre(FieldsAre(1, 0, 0, 0), FieldsAre(0, 0, 1, 0)))
      << "where the core of one CPU is unknown, each is a core, in the order given";
}

TEST(Cpus, TheFirstIsOnlineWhereTheSystemSaysNothing) {
  EXPECT_EQ(online_cpus(reading({})), CpuList{0});
  EXPECT_EQ(online_cpus(reading({{"/sys/devices/system/cpu/online", "x\n"}})), CpuList{0});
  EXPECT_EQ(online_cpus(reading({{"/sys/devices/system/cpu/online", "\n"}})), CpuList{0});
  EXPECT_EQ(online_cpus(reading({{"/sys/devices/system/cpu/online", "2,4-5\n"}})), (CpuList{2, 4, 5}));
}

}  // namespace
}  // namespace trainyard::core::cpu_topology_test
