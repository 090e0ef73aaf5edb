#include "trainyard/core/machine/machine_info.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trainyard/core/system/system_files.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core::machine_info_test {
namespace {

TEST(MachineInfo, KnowsThisMachine) {
  const MachineInfo info = machine_info();
  const std::string model = proc_value(read_system_file("/proc/cpuinfo").value_or(""), "model name");
  EXPECT_EQ(info.processor, model.empty() ? "unknown" : model);
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(info.name, std::string(name.data()));
  EXPECT_EQ(info.cores, available_cores());
  // A container may be told less than the machine has.
  const auto pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  EXPECT_GT(info.memory_bytes, 0U);
  EXPECT_LE(info.memory_bytes, pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
}

TEST(MachineInfo, TheMostMemoryCountsAlsoOnceItIsFree) {
  constexpr size_t kBytes = size_t{96} << 20;
  const int64_t before = peak_memory_bytes();
  { const std::vector<char> much(static_cast<size_t>(before) + kBytes, 1); }
  // An allocator may have had some of it resident before.
  EXPECT_GE(peak_memory_bytes(), before + static_cast<int64_t>(kBytes) / 2);
}

// The kernel tells both in KiB: proc(5), getrusage(2).
TEST(MachineInfo, CountsInBytes) {
  EXPECT_EQ(machine_info().memory_bytes, memory_info_bytes("MemTotal"));
  rusage before{}, after{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  const int64_t peak = peak_memory_bytes();
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &after), 0);
  EXPECT_GE(peak, int64_t{before.ru_maxrss} * 1024);
  EXPECT_LE(peak, int64_t{after.ru_maxrss} * 1024);
}

}  // namespace
}  // namespace trainyard::core::machine_info_test
