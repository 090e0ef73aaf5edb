#include "trainyard/core/system/system_files.h"

#include <gtest/gtest.h>
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

TEST(SystemFiles, ReadsThisMachine) {
  EXPECT_EQ(proc_value(read_system_file("/proc/self/status").value(), "Pid"), std::to_string(::getpid()));
  EXPECT_FALSE(read_system_file("/proc/no such file"));
}

}  // namespace
}  // namespace trainyard::core::system_files_test
