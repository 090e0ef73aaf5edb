#include "trainyard/core/machine/machine_limits.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/core/machine/peak_kernels.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core::machine_limits_test {
namespace {

// The sum that a kernel returns counts the multiply-adds that it did: with a = b = 1 each adds one.
TEST(PeakKernels, DoTheFlopsTheyClaim) {
  int kernels = 0;
  for (const auto& kernel : {fp32_kernel(), bf16_kernel()}) {
    if (!kernel) continue;
    ++kernels;
    for (const int64_t iterations : {1, 7, 1000}) {
      EXPECT_EQ(kernel->run(iterations, 1, 1), static_cast<double>(iterations * kernel->flops_per_iteration) / 2)
          << kernel->name;
      EXPECT_EQ(kernel->run(iterations, -0.5F, 0.25F),
                -0.125 * static_cast<double>(iterations * kernel->flops_per_iteration) / 2)
          << kernel->name;
    }
  }
  EXPECT_GE(kernels, memory_kernels_available() ? 1 : 0);
}

TEST(PeakKernels, MoveTheBytesTheyClaim) {
  constexpr int64_t kCount = 4096;
  struct alignas(64) Line {
    float values[16];
  };
  std::vector<Line> lines_a(kCount / 16), lines_b(kCount / 16), lines_c(kCount / 16 + 1);
  float* const a = lines_a.front().values;
  float* const b = lines_b.front().values;
  float* const c = lines_c.front().values;
  std::iota(a, a + kCount, 1.0F);
  c[kCount] = -7;
  EXPECT_EQ(read_floats(a, kCount), kCount * (kCount + 1) / 2.0) << "every float once, exact in 24 bits";
  copy_floats(b, a, kCount);
  EXPECT_TRUE(std::equal(a, a + kCount, b));
  triad_floats(c, a, b, 0.5F, kCount);
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(c[i], 1.5F * a[i]) << i;
  EXPECT_EQ(c[kCount], -7);
}

TEST(MachineLimits, AreMeasured) {
  const MachineLimits limits = measure_machine_limits({.threads = 2, .seconds = 0.002, .array_bytes = 1 << 20});
  EXPECT_EQ(limits.threads, 2);
  // What any processor with AVX2 does and none comes near, also under sanitizers on a busy machine.
  for (const double flops : {limits.fp32_flops_one, limits.fp32_flops_all}) {
    EXPECT_GT(flops, 1e8);
    EXPECT_LT(flops, 1e13);
  }
  EXPECT_EQ(bf16_kernel().has_value(), limits.bf16_flops_one > 0 && limits.bf16_flops_all > 0);
  for (const double bytes : {limits.read_bytes, limits.copy_bytes, limits.triad_bytes}) {
    EXPECT_GT(bytes, 1e7);
    EXPECT_LT(bytes, 1e13);
  }
  EXPECT_GT(limits.processor_share, 0);
  EXPECT_LE(limits.processor_share, 1);
  EXPECT_GT(limits.measured_at, 1'700'000'000);
}

// Threads that wait for a core, as they do where other processes have it, make the limits lower. They run for longer
// than a scheduler lets one of them have a core.
TEST(MachineLimits, SayThatThreadsHaveWaitedForCores) {
  const MachineLimits limits =
      measure_machine_limits({.threads = 4 * available_cores(), .seconds = 0.03, .array_bytes = 1 << 20});
  EXPECT_EQ(limits.threads, 4 * available_cores());
  EXPECT_GT(limits.processor_share, 0);
  EXPECT_TRUE(limits.measured_on_busy_machine()) << limits.processor_share;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end a process that asks for so much
TEST(MachineLimits, NoMemoryToMeasureIsAnError) {
  EXPECT_EQ(
      message_of([] { measure_machine_limits({.threads = 1, .seconds = 0.002, .array_bytes = int64_t{1} << 60}); },
                 ErrorCode::kNoSpace),
      "no memory to measure the memory with");
}
#endif

constexpr MachineLimits kSample{.threads = 4,
                                .fp32_flops_one = 1.25e11,
                                .fp32_flops_all = 4.75e11,
                                .bf16_flops_one = 0,
                                .bf16_flops_all = 0,
                                .read_bytes = 4e10 / 3,
                                .copy_bytes = 2e10,
                                .triad_bytes = 2.5e10,
                                .processor_share = 0.75,
                                .measured_at = 1'700'000'000};

TEST(MachineLimits, ComeBack) {
  const TempDir temp;
  const std::string directory = temp.file("cache/trainyard");
  EXPECT_FALSE(load_machine_limits(directory).has_value());
  const std::string path = save_machine_limits(kSample, directory);
  EXPECT_EQ(parent_path(path), directory);
  const auto loaded = load_machine_limits(directory);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->threads, 4);
  EXPECT_EQ(loaded->fp32_flops_all, 4.75e11);
  EXPECT_EQ(loaded->read_bytes, 4e10 / 3);
  EXPECT_EQ(loaded->triad_bytes, 2.5e10);
  EXPECT_EQ(loaded->processor_share, 0.75);
  EXPECT_EQ(loaded->measured_at, 1'700'000'000);
  EXPECT_EQ(loaded->flops(false), 4.75e11);
  EXPECT_EQ(loaded->flops(true), 4.75e11) << "without instructions for it, 16 bits are no faster";
  EXPECT_NE(local_file_system().read_file(path).find(machine_info().processor), std::string::npos);
}

TEST(MachineLimits, EachNumberComesBackUnderItsName) {
  const TempDir temp;
  const MachineLimits limits{.threads = 9,
                             .fp32_flops_one = 1,
                             .fp32_flops_all = 2,
                             .bf16_flops_one = 3,
                             .bf16_flops_all = 4,
                             .read_bytes = 5,
                             .copy_bytes = 6,
                             .triad_bytes = 7,
                             .processor_share = 0.5,
                             .measured_at = 8};
  const std::string text = "\n" + local_file_system().read_file(save_machine_limits(limits, temp.path()));
  for (const char* line :
       {"threads: 9", "measured_at: 8", "fp32_flops_one: 1", "fp32_flops_all: 2", "bf16_flops_one: 3",
        "bf16_flops_all: 4", "read_bytes: 5", "copy_bytes: 6", "triad_bytes: 7", "processor_share: 0.5"}) {
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line;
  }
  const auto loaded = load_machine_limits(temp.path());
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->threads, 9);
  EXPECT_EQ(loaded->fp32_flops_one, 1);
  EXPECT_EQ(loaded->fp32_flops_all, 2);
  EXPECT_EQ(loaded->bf16_flops_one, 3);
  EXPECT_EQ(loaded->bf16_flops_all, 4);
  EXPECT_EQ(loaded->read_bytes, 5);
  EXPECT_EQ(loaded->copy_bytes, 6);
  EXPECT_EQ(loaded->triad_bytes, 7);
  EXPECT_EQ(loaded->processor_share, 0.5);
  EXPECT_EQ(loaded->measured_at, 8);
}

TEST(MachineLimits, OfAnotherMachineOrDamagedAreNotTaken) {
  const TempDir temp;
  const std::string path = save_machine_limits(kSample, temp.path());
  const std::string text = local_file_system().read_file(path);
  const auto loads_after = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    local_file_system().write_file_atomically(path, changed);
    return load_machine_limits(temp.path()).has_value();
  };
  EXPECT_TRUE(loads_after("format: 1", "format: 1"));
  EXPECT_FALSE(loads_after("format: 1", "format: 2"));
  EXPECT_FALSE(loads_after("machine: ", "machine: another "));
  EXPECT_FALSE(loads_after("read_bytes: ", "read_bytes: x"));
  EXPECT_FALSE(loads_after("read_bytes: ", "read_bytes: -"));
  EXPECT_FALSE(loads_after("triad_bytes", "triad_byte"));
}

TEST(MachineLimits, LiveInTheUsersCacheFolder) {
  const TempDir temp;
  const EnvironmentVariable home("HOME", temp.path()), cache("XDG_CACHE_HOME", temp.file("xdg"));
  EXPECT_EQ(parent_path(save_machine_limits(kSample)), temp.file("xdg/trainyard"));
  cache.set("relative");
  EXPECT_FALSE(load_machine_limits().has_value());
  EXPECT_EQ(parent_path(save_machine_limits(kSample)), temp.file(".cache/trainyard"));
  EXPECT_TRUE(load_machine_limits().has_value());
  cache.set(std::nullopt);
  home.set("relative");
  EXPECT_FALSE(load_machine_limits().has_value());
  EXPECT_THROW(save_machine_limits(kSample), Error) << "it would lie wherever the program was started";
  home.set(std::nullopt);
  EXPECT_FALSE(load_machine_limits().has_value());
  EXPECT_THROW(save_machine_limits(kSample), Error);
}

TEST(UserCache, NamesFilesByTheKindOfMachine) {
  const MachineInfo machine = machine_info();
  EXPECT_EQ(machine_kind(),
            fmt::format("{}; {} cores; avx2 {}, avx512f {}, avx512_bf16 {}", machine.processor, machine.cores,
                        __builtin_cpu_supports("avx2") != 0, cpu_has_avx512(), cpu_has_avx512_bf16()));
  const std::string name = fmt::format("name-{:08x}.txt", crc32c(machine_kind()));
  EXPECT_EQ(user_cache_file("name", "/folder"), "/folder/" + name);
  const EnvironmentVariable home("HOME", "/home/user"), cache("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(user_cache_file("name"), "/cache/trainyard/" + name);
  EXPECT_EQ(user_cache_folder("name"), "/cache/trainyard/name");
  cache.set("relative");
  EXPECT_EQ(user_cache_file("name"), "/home/user/.cache/trainyard/" + name);
  EXPECT_EQ(user_cache_folder("name"), "/home/user/.cache/trainyard/name");
  home.set("relative");
  EXPECT_EQ(user_cache_file("name"), "");
  EXPECT_EQ(user_cache_folder("name"), "");
  EXPECT_EQ(user_cache_file("name", "/folder"), "/folder/" + name);
}

TEST(MachineLimits, SayWhyTheyAreNotKnownOrNotKept) {
  const TempDir temp;
  const auto warned = [](const std::string& directory) {
    testing::internal::CaptureStderr();
    EXPECT_FALSE(load_machine_limits(directory).has_value());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warned(temp.path()), "") << "that there is no file is nothing to be told";
  const std::string path = save_machine_limits(kSample, temp.path());
  local_file_system().write_file_atomically(path, "format: 2\n");
  EXPECT_THAT(warned(temp.path()), testing::HasSubstr("warning " + path + " cannot be understood"));
  local_file_system().remove_file(path);
  local_file_system().make_directories(path);
  EXPECT_THAT(warned(temp.path()), testing::HasSubstr("warning the machine's limits are not known: open file failed"));
  const EnvironmentVariable home("HOME", std::nullopt), cache("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(warned(""), "");
  EXPECT_EQ(message_of([] { save_machine_limits(kSample); }),
            "there is no folder to keep the machine's limits in; set XDG_CACHE_HOME or HOME to an absolute path");
}

}  // namespace
}  // namespace trainyard::core::machine_limits_test
