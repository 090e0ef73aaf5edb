#include "trainyard/core/machine/machine_info.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace trainyard::core::machine_info_test {
namespace {

TEST(MachineInfo, KnowsThisMachine) {
  const MachineInfo info = machine_info();
  EXPECT_FALSE(info.processor.empty());
  EXPECT_GE(info.cores, 1);
  // A container may be told less than the machine has.
  const auto pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  EXPECT_GT(info.memory_bytes, 0U);
  EXPECT_LE(info.memory_bytes, pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace trainyard::core::machine_info_test
