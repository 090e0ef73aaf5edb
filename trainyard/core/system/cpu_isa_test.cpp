#include "trainyard/core/system/cpu_isa.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/machine/peak_kernels.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::cpu_isa_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

TEST(CpuIsa, NamesALimit) {
  EXPECT_EQ(parse_cpu_isa_limit(""), CpuIsaLimit::kNone);
  for (const CpuIsaLimit limit : {CpuIsaLimit::kNone, CpuIsaLimit::kAvx2, CpuIsaLimit::kAvx512}) {
    EXPECT_EQ(parse_cpu_isa_limit(to_string(limit)), limit);
  }
}

TEST(CpuIsa, RefusesUnknownOnesWithThoseThatAreKnown) {
  for (const char* name : {"AVX2", "avx", "avx10", "avx2 ", "none"}) {
    try {
      parse_cpu_isa_limit(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("auto, avx2 or avx512"));
      EXPECT_THAT(error.what(), HasSubstr(kMaxCpuIsaVariable));
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

// Run under each limit by CTest: CpuIsaLimitedTo.*
TEST(CpuIsa, LimitHoldsForAll) {
  const std::string given = variable(kMaxCpuIsaVariable);
  EXPECT_EQ(cpu_isa_limit(), parse_cpu_isa_limit(given));
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  EXPECT_EQ(cpu_has_avx512(), has_avx512 && given != "avx2");
  EXPECT_EQ(cpu_has_avx512_bf16(), __builtin_cpu_supports("avx512bf16") != 0 && (given.empty() || given == "auto"));
  EXPECT_EQ(fp32_kernel()->name == std::string("fp32, AVX-512"), cpu_has_avx512());
  EXPECT_EQ(bf16_kernel().has_value(), cpu_has_avx512_bf16());
  // What is kept for later runs, kernels that were measured among it, is kept apart.
  EXPECT_THAT(machine_kind(), HasSubstr(cpu_has_avx512() ? "avx512f true" : "avx512f false"));
  EXPECT_THAT(machine_kind(), HasSubstr(cpu_has_avx512_bf16() ? "avx512_bf16 true" : "avx512_bf16 false"));
  const auto name_of = [](bool avx512, bool bf16) -> std::string {
    return bf16 ? "AVX-512 with BF16" : avx512 ? "AVX-512" : "AVX2";
  };
  const std::string used = name_of(cpu_has_avx512(), cpu_has_avx512_bf16()),
                    processor = name_of(has_avx512, __builtin_cpu_supports("avx512bf16") != 0);
  const std::string limit = ", limited by TRAINYARD_MAX_CPU_ISA=" + given + " (the processor has " + processor + ")";
  EXPECT_EQ(describe_cpu_isa(), used + (given.empty() || given == "auto" ? "" : limit));
  if (given == "avx2") {
    EXPECT_EQ(variable("ONEDNN_MAX_CPU_ISA"), "AVX2");
    EXPECT_EQ(variable("DNNL_MAX_CPU_ISA"), "AVX2");
    EXPECT_EQ(variable("ATEN_CPU_CAPABILITY"), "avx2");
    EXPECT_EQ(variable("MKL_ENABLE_INSTRUCTIONS"), "AVX2");
    EXPECT_THAT(describe_cpu_isa(), HasSubstr("AVX2, limited by TRAINYARD_MAX_CPU_ISA=avx2 (the processor has "));
  } else if (given == "avx512") {
    // LibTorch would run what it is told to, whatever the processor has.
    EXPECT_EQ(variable("ONEDNN_MAX_CPU_ISA"), has_avx512 ? "AVX512_CORE" : "AVX2");
    EXPECT_EQ(variable("ATEN_CPU_CAPABILITY"), has_avx512 ? "avx512" : "avx2");
  } else {
    EXPECT_THAT(describe_cpu_isa(), Not(HasSubstr("limited")));
  }
}

constexpr const char* kVariables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY",
                                      "MKL_ENABLE_INSTRUCTIONS"};

// In a process of its own, whose environment was made before it began.
void write_variables(const std::string& path) {
  std::ofstream out(path);
  for (const char* const name : kVariables) out << variable(name) << '\n';
}

const bool kWritesVariables = add_helper_task("TRAINYARD_CPU_ISA_TASK", "CpuIsaTask.InAProcess", write_variables);

// In a process of its own, whose limit has more bytes than the name of any.
void write_refusal(const std::string& path) {
  std::ofstream(path) << message_of([] { static_cast<void>(cpu_isa_limit()); });
}

const bool kWritesRefusal =
    add_helper_task("TRAINYARD_CPU_ISA_REFUSAL_TASK", "CpuIsaRefusalTask.InAProcess", write_refusal);

// What a task of this program writes in a process with this limit.
std::string written_by(const std::string& task, const std::string& test, const std::string& limit) {
  const TempDir temp;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX -u GTEST_OUTPUT " + task + "='" +
                        temp.file("text") + "' TRAINYARD_MAX_CPU_ISA=" + limit;
  for (const char* const name : kVariables) command += std::string(" ") + name + "=default";
  command += " '" + program + "' --gtest_filter=" + test + " > /dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return local_file_system().read_file(temp.file("text"));
}

TEST(CpuIsa, OnlyALimitSetsTheVariablesOfTheLibraries) {
  const auto variables_with = [](const std::string& limit) {
    return written_by("TRAINYARD_CPU_ISA_TASK", "CpuIsaTask.InAProcess", limit);
  };
  EXPECT_EQ(variables_with("auto"), "default\ndefault\ndefault\ndefault\n");
  EXPECT_EQ(variables_with("avx2"), "AVX2\nAVX2\navx2\nAVX2\n");
}

TEST(CpuIsa, ALimitIsToldByItsFirst31Bytes) {
  EXPECT_EQ(
      written_by("TRAINYARD_CPU_ISA_REFUSAL_TASK", "CpuIsaRefusalTask.InAProcess", std::string(40, 'x')),
      "unknown instruction set: TRAINYARD_MAX_CPU_ISA: expected auto, avx2 or avx512, got " + std::string(31, 'x'));
}

}  // namespace
}  // namespace trainyard::core::cpu_isa_test
