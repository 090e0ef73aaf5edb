#include "trainyard/core/system/system_files.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace trainyard::core::system_files_test {
namespace {

TEST(SystemFiles, FindsValuesByTheirWholeKey) {
  const std::string text =
      "model\t\t: 17\nmodel name\t: Some CPU @ 2.0 GHz: fast\nMemTotal:       24593408 kB\nempty:\n";
  EXPECT_EQ(proc_value(text, "model"), "17");
  EXPECT_EQ(proc_value(text, "model name"), "Some CPU @ 2.0 GHz: fast");
  EXPECT_EQ(proc_value(text, "MemTotal"), "24593408 kB");
  EXPECT_EQ(proc_value(text, "empty"), "");
  EXPECT_EQ(proc_value(text, "Mem"), "");
  EXPECT_EQ(proc_value("", "Mem"), "");
}

TEST(SystemFiles, GivesMemoryInBytes) {
  const auto read = [](const std::string& path) -> std::optional<std::string> {
    EXPECT_EQ(path, "/proc/meminfo");
    return "MemTotal:       24593408 kB\nMemFree: 5 kB\nMemAvailable:   1024 kB\n";
  };
  EXPECT_EQ(memory_info_bytes("MemTotal", read), uint64_t{24593408} * 1024);
  EXPECT_EQ(memory_info_bytes("MemAvailable", read), uint64_t{1} << 20);
  EXPECT_EQ(memory_info_bytes("MemLost", read), 0U);
  EXPECT_EQ(memory_info_bytes("MemTotal", [](const std::string&) { return std::nullopt; }), 0U);
}

TEST(SystemFiles, GivesTheTimeThatAThreadWaitedForACore) {
  const auto read = [](const std::string& path) -> std::optional<std::string> {
    EXPECT_EQ(path, "/proc/thread-self/schedstat");
    return "552509434 12500000 58\n";
  };
  EXPECT_EQ(seconds_waited_for_core(read), 0.0125);
  EXPECT_FALSE(seconds_waited_for_core([](const std::string&) { return std::nullopt; }));
  EXPECT_FALSE(seconds_waited_for_core([](const std::string&) { return "552509434"; }));
}

// Two threads on one core: each waits while the other runs.
TEST(SystemFiles, SeesAnotherThreadOnTheSameCore) {
  if (!read_system_file("/proc/thread-self/schedstat")) {
    EXPECT_FALSE(seconds_waited_for_core());
    return;
  }
  std::atomic<bool> stop = false;
  const auto one_core = [] {
    cpu_set_t cores, one;
    CPU_ZERO(&cores);
    CPU_ZERO(&one);
    ASSERT_EQ(::sched_getaffinity(0, sizeof(cores), &cores), 0);
    int first = 0;
    while (!CPU_ISSET(first, &cores)) ++first;
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  };
  std::thread other([&] {
    one_core();
    while (!stop) {
    }
  });
  double waited = 0;
  std::thread waiting([&] {
    one_core();
    const double before = seconds_waited_for_core().value_or(0);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200)) {
    }
    waited = seconds_waited_for_core().value_or(0) - before;
  });
  waiting.join();
  stop = true;
  other.join();
  EXPECT_GT(waited, 0.02);
  EXPECT_LT(waited, 60);
}

TEST(SystemFiles, ReadsThisMachine) {
  EXPECT_EQ(proc_value(read_system_file("/proc/self/status").value(), "Pid"), std::to_string(::getpid()));
  EXPECT_FALSE(read_system_file("/proc/no such file"));
}

}  // namespace
}  // namespace trainyard::core::system_files_test
