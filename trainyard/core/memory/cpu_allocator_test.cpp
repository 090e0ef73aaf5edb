#include "trainyard/core/memory/cpu_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core::cpu_allocator_test {
namespace {

constexpr int64_t kFloats = 1 << 20;  // 4 MiB

class CpuAllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    ASSERT_FALSE(install_cpu_allocator());
    GTEST_SKIP() << core::skip::kNeedsOwnAllocator;
#endif
    ASSERT_TRUE(install_cpu_allocator(uint64_t{4} << 30));
    trim_cpu_allocator();
  }
};

TEST_F(CpuAllocatorTest, TensorsReuseMemory) {
  EXPECT_TRUE(cpu_allocator_installed());
  const CpuAllocatorStatistics before = cpu_allocator_statistics();
  const void* address = nullptr;
  {
    const at::Tensor tensor = at::full({kFloats}, 1.0f);
    address = tensor.const_data_ptr();
    EXPECT_GE(cpu_allocator_statistics().used_bytes, before.used_bytes + 4 * kFloats);
  }
  EXPECT_EQ(cpu_allocator_statistics().used_bytes, before.used_bytes);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(at::empty({kFloats}).const_data_ptr(), address);
  const CpuAllocatorStatistics after = cpu_allocator_statistics();
  EXPECT_GE(after.cache_hits, before.cache_hits + 10);
  EXPECT_GE(trim_cpu_allocator(), uint64_t{4} * kFloats);
  EXPECT_EQ(cpu_allocator_statistics().held_bytes, cpu_allocator_statistics().used_bytes);
}

// Each page is provided at its first use, near the thread that uses it.
TEST_F(CpuAllocatorTest, ZeroedMemoryTouchesNoPage) {
  const auto resident_pages = [] {
    std::ifstream statm("/proc/self/statm");
    int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident;
  };
  constexpr size_t kBytes = size_t{256} << 20;
  const int64_t before = resident_pages();
  const CpuMemory memory = zeroed_cpu_memory(kBytes);
  EXPECT_LT((resident_pages() - before) * ::sysconf(_SC_PAGESIZE), static_cast<int64_t>(kBytes / 4));
  EXPECT_EQ(static_cast<const char*>(memory.get())[kBytes - 1], 0);
}

TEST_F(CpuAllocatorTest, FreesComeFromAnyThread) {
  const uint64_t used = cpu_allocator_statistics().used_bytes;
  std::optional<at::Tensor> tensor = at::full({kFloats}, 2.0f);
  Thread thread({.name = "frees"}, [&] { tensor.reset(); });
  thread.join();
  EXPECT_EQ(cpu_allocator_statistics().used_bytes, used);
}

TEST_F(CpuAllocatorTest, LimitIsAnErrorOfOursAndNothingIsLost) {
  const at::Tensor kept = at::full({kFloats}, 3.0f);
  install_cpu_allocator(uint64_t{64} << 20);
  try {
    at::empty({64 * kFloats});
    ADD_FAILURE() << "the limit was passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
    EXPECT_NE(std::string(error.what()).find("268435456 bytes"), std::string::npos) << error.what();
  }
  EXPECT_EQ(kept.sum().item<float>(), 3.0f * kFloats);
  EXPECT_NO_THROW(at::empty({kFloats}));
}

TEST_F(CpuAllocatorTest, FulfilsTheInterfaceOfLibTorch) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  ASSERT_NE(allocator->raw_deleter(), nullptr);
  void* raw = allocator->raw_allocate(100);
  ASSERT_NE(raw, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(raw) % 64, 0u);
  std::memcpy(raw, "content", 8);
  const c10::DataPtr copy = allocator->clone(raw, 8);
  EXPECT_NE(copy.get(), raw);
  EXPECT_STREQ(static_cast<const char*>(copy.get()), "content");
  EXPECT_TRUE(allocator->is_simple_data_ptr(copy));
  allocator->raw_deallocate(raw);
  EXPECT_EQ(allocator->allocate(0).get(), nullptr);
  EXPECT_EQ(at::empty({0}).numel(), 0);
}

TEST_F(CpuAllocatorTest, TensorsMayOutliveMain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static at::Tensor tensor;  // destroyed by exit, after everything that was made later
        install_cpu_allocator();
        tensor = at::full({kFloats}, 4.0f);
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

// What the program itself needs counts in the limit of its control group, too.
TEST_F(CpuAllocatorTest, LeavesAnEighthOfTheControlGroupsLimitToTheProgram) {
  install_cpu_allocator(uint64_t{123} << 20);
  EXPECT_EQ(cpu_allocator_statistics().limit_bytes, uint64_t{123} << 20);
  install_cpu_allocator();
  const auto group = cgroup_limits().memory_bytes;
  EXPECT_EQ(cpu_allocator_statistics().limit_bytes,
            group ? *group - std::min<uint64_t>(*group / 8, uint64_t{512} << 20) : 0);
}

// Ends the process with 7 where memory without our allocator is zeroed, also when it was used before.
[[noreturn]] void look_at_zeroed_memory() {
  constexpr size_t kBytes = size_t{1} << 16;
  bool zeroed = !cpu_allocator_installed();
  for (int turn = 0; turn < 2; ++turn) {
    const CpuMemory memory = zeroed_cpu_memory(kBytes);
    auto* const bytes = static_cast<unsigned char*>(memory.get());
    zeroed = zeroed && std::all_of(bytes, bytes + kBytes, [](unsigned char byte) { return byte == 0; });
    std::memset(bytes, 0xff, kBytes);
  }
  _exit(zeroed ? 7 : 1);
}

// In a process of its own, which has not installed it.
TEST(ZeroedCpuMemoryDeathTest, IsZeroedWithoutTheAllocatorToo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(look_at_zeroed_memory(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace trainyard::core::cpu_allocator_test
