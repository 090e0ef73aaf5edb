#include "trainyard/core/system/cgroup.h"

#include <map>

#include <gtest/gtest.h>

namespace trainyard::core::cgroup_test {
namespace {

CgroupLimits limits(const std::map<std::string, std::string>& files) {
  return cgroup_limits([&](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Cgroup, Version2InAContainer) {
  const CgroupLimits result = limits({{"/proc/self/cgroup", "0::/\n"},
                                      {"/sys/fs/cgroup/cpu.max", "150000 100000\n"},
                                      {"/sys/fs/cgroup/memory.max", "2147483648\n"}});
  EXPECT_DOUBLE_EQ(result.cores.value(), 1.5);
  EXPECT_EQ(result.memory_bytes, 2147483648u);
}

TEST(Cgroup, Version2TakesTheTightestAncestor) {
  const CgroupLimits result = limits({{"/proc/self/cgroup", "0::/user.slice/job_7/step\n"},
                                      {"/sys/fs/cgroup/user.slice/cpu.max", "400000 100000\n"},
                                      {"/sys/fs/cgroup/user.slice/job_7/cpu.max", "800000 100000\n"},
                                      {"/sys/fs/cgroup/user.slice/job_7/step/cpu.max", "max 100000\n"},
                                      {"/sys/fs/cgroup/user.slice/memory.max", "max\n"},
                                      {"/sys/fs/cgroup/user.slice/job_7/memory.max", "1000000\n"},
                                      {"/sys/fs/cgroup/user.slice/job_7/step/memory.max", "3000000\n"}});
  EXPECT_DOUBLE_EQ(result.cores.value(), 4);
  EXPECT_EQ(result.memory_bytes, 1000000u);
}

TEST(Cgroup, Version1) {
  const CgroupLimits result =
      limits({{"/proc/self/cgroup", "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n3:cpuset:/\n0::/\n"},
              {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"},
              {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
              {"/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "4000000000\n"},
              {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_DOUBLE_EQ(result.cores.value(), 2);
  EXPECT_EQ(result.memory_bytes, 4000000000u);
}

TEST(Cgroup, UnlimitedAndUnknownTextLimitNothing) {
  const CgroupLimits v1 = limits({{"/proc/self/cgroup", "1:cpu:/\n4:memory:/\n"},
                                  {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                                  {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                                  {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_FALSE(v1.cores);
  EXPECT_FALSE(v1.memory_bytes);
  for (const char* text : {"", "\n", "max", "max 0", "0 100000", "x y", "100000 0", "99999999999999999999 1", "7"}) {
    const CgroupLimits v2 = limits({{"/proc/self/cgroup", "garbage\n0:\n0::/\n"}, {"/sys/fs/cgroup/cpu.max", text}});
    EXPECT_FALSE(v2.cores) << text;
  }
  EXPECT_FALSE(limits({}).cores);
}

// Systems without a mount of "cpu,cpuacct" have one of each controller.
TEST(Cgroup, Version1IsFoundByEachControllersOwnName) {
  const CgroupLimits result = limits({{"/proc/self/cgroup", "5:cpuacct,cpu:/docker/ab\n4:hugetlb,memory:/docker/ab\n"},
                                      {"/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "300000\n"},
                                      {"/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000\n"},
                                      {"/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "5000000000\n"}});
  EXPECT_EQ(result.cores, 3);
  EXPECT_EQ(result.memory_bytes, 5000000000U);
}

TEST(Cgroup, ALimitOfTwoToThe62AndMoreIsNone) {
  const auto memory = [](const std::string& bytes) {
    return limits({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/memory.max", bytes}}).memory_bytes;
  };
  EXPECT_EQ(memory("4611686018427387903\n"), (uint64_t{1} << 62) - 1);
  EXPECT_EQ(memory("4611686018427387904\n"), std::nullopt);
}

}  // namespace
}  // namespace trainyard::core::cgroup_test
