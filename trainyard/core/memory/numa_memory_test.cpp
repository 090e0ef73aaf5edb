#include "trainyard/core/memory/numa_memory.h"

#include <cerrno>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trainyard/core/system/cpu_topology.h"

namespace trainyard::core::numa_memory_test {
namespace {

// What the kernel says of the calling thread, or of the memory at `address`: the policy, -1 where it may not be asked.
int policy(void* address = nullptr) {
  int mode = -1;
  const unsigned long flags = address == nullptr ? 0 : MPOL_F_ADDR;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, address, flags) == 0 ? mode : -1;
}

bool may_be_set() {
  return syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0 && policy() == MPOL_DEFAULT;
}

int some_node() {
  return numa_nodes(allowed_cpus()).front().number;
}

TEST(NumaMemory, OfAThreadIsThatOfItsNode) {
  std::thread([] {
    const bool settable = may_be_set();
    prefer_memory_of_node(some_node());
    if (settable) {
      EXPECT_EQ(policy(), MPOL_PREFERRED);
      std::thread([] { EXPECT_EQ(policy(), MPOL_PREFERRED); }).join();  // as the members of a team
    }
  }).join();
  EXPECT_NE(policy(), MPOL_PREFERRED);
}

TEST(NumaMemory, MovesWholePagesAndKeepsTheirContent) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t pages = 4;
  auto* memory =
      static_cast<char*>(mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  for (size_t i = 0; i < pages * page; ++i) memory[i] = static_cast<char>(i % 127);
  move_memory_to_node(memory + 64, 3 * page, some_node());  // from within page 0 to within page 3
  if (may_be_set()) {
    EXPECT_EQ(policy(memory), MPOL_DEFAULT);
    EXPECT_EQ(policy(memory + page), MPOL_PREFERRED);
    EXPECT_EQ(policy(memory + 2 * page), MPOL_PREFERRED);
    EXPECT_EQ(policy(memory + 3 * page), MPOL_DEFAULT);
  }
  for (size_t i = 0; i < pages * page; ++i) ASSERT_EQ(memory[i], static_cast<char>(i % 127)) << i;
  move_memory_to_node(memory + 64, page, some_node());  // no whole page
  munmap(memory, pages * page);
}

// Asks twice for the memory of nodes that there are not. Ends the process with 7 where one warning tells of the first.
[[noreturn]] void ask_for_no_node(bool move_first) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  testing::internal::CaptureStderr();
  for (const int node : {5000, 5001}) {
    const bool move = move_first == (node == 5000);
    move ? move_memory_to_node(memory, 2 * page, node) : prefer_memory_of_node(node);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  const bool told = text.find(" warning the memory of NUMA node 5000 cannot be asked for (") != std::string::npos;
  _exit(told && text.find("5001") == std::string::npos ? 7 : 1);
}

// In processes of their own, which have not warned before.
TEST(NumaMemoryDeathTest, ThatCannotBeHadIsToldOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ask_for_no_node(true), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(ask_for_no_node(false), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trainyard::core::numa_memory_test
