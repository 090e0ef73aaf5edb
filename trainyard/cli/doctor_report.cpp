#include "trainyard/cli/doctor_report.h"

#include <algorithm>
#include <ctime>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <sys/utsname.h>

#include "trainyard/cli/doctor_all_reduce.h"
#include "trainyard/core/machine/cuda_toolkit.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::cli {
namespace {

std::string gibibytes(uint64_t bytes) {
  return bytes == 0 ? "unknown" : fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

DoctorReport::Section machine() {
  const core::MachineInfo info = core::machine_info();
  utsname system{};
  uname(&system);
  // "always [madvise] never": the brackets mark the one in force.
  std::string pages = core::read_system_file("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const size_t open = pages.find('['), close = pages.find(']');
  pages = open < close && close != std::string::npos ? pages.substr(open + 1, close - open - 1) : "unknown";
  const uint64_t limit = core::cpu_allocator_statistics().limit_bytes;
  return {"Machine",
          {{"processor", info.processor},
           {"cores for us", std::to_string(info.cores)},
           {"memory",
            gibibytes(info.memory_bytes) + ", " + gibibytes(core::memory_info_bytes("MemAvailable")) + " available"},
           {"memory limit", limit == 0 ? "none" : gibibytes(limit)},
           {"huge pages", pages},
           {"system", fmt::format("{} {}", system.sysname, system.release)}}};
}

DoctorReport::Section instruction_sets() {
  struct Set {
    const char* name;
    bool present;
    const char* use;
  };
  const Set sets[] = {{"AVX2", __builtin_cpu_supports("avx2") != 0, "float kernels, 8 lanes"},
                      {"FMA", __builtin_cpu_supports("fma") != 0, "fused multiply-add"},
                      {"AVX512F", __builtin_cpu_supports("avx512f") != 0, "float kernels, 16 lanes"},
                      {"AVX512_BF16", __builtin_cpu_supports("avx512bf16") != 0, "bfloat16 products"}};
  DoctorReport::Section section{"Instruction sets", {{"in use", core::describe_cpu_isa()}}};
  for (const Set& set : sets)
    section.rows.emplace_back(set.name, fmt::format("{} ({})", set.present ? "yes" : "no", set.use));
  return section;
}

std::string utc_day(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm fields{};
  char text[sizeof "2026-01-01"];
  ::gmtime_r(&seconds, &fields);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &fields)};
}

}  // namespace

DoctorReport::Section build_section(const core::BuildInfo& info) {
  DoctorReport::Section section{"Build",
                                {{"Trainyard", fmt::format("{} ({})", info.version, info.git_revision)},
                                 {"compiler", std::string(info.compiler)},
                                 {"build type", std::string(info.build_type)},
                                 {"instruction set", std::string(info.instruction_set)}}};
  if (!info.sanitizers.empty()) section.rows.emplace_back("sanitizers", info.sanitizers);
  for (const core::LibraryVersion& library : info.libraries) section.rows.emplace_back(library.name, library.version);
  return section;
}

DoctorReport::Section features_section(const std::vector<core::OptionalPart>& parts, bool cuda_toolkit_found) {
  DoctorReport::Section section{"Features",
                                {{"CPU training", "built in"},
                                 {"replicas on threads", "built in"},
                                 {"allocator", core::cpu_allocator_installed() ? "caching" : "the system's"}}};
  for (const core::OptionalPart& part : parts) {
    std::string finding = fmt::format("missing: {}", part.how_to_get);
    if (part.name == "CUDA" && cuda_toolkit_found) finding = "toolkit found, not built in: cmake --preset cuda";
    section.rows.emplace_back(part.name, part.built_in ? "built in" : finding);
  }
  return section;
}

DoctorReport::Section convolutions_section(const nn::cpu::ConvolutionChoices& choices) {
  DoctorReport::Section section{"Convolutions", {{"kernels", nn::cpu::describe_isa()}}};
  const auto all = choices.all();
  if (all.empty()) {
    section.rows.push_back(
        {"measured", "none yet; --conv_algorithm=auto measures those of a model when it first runs"});
    return section;
  }
  section.rows.push_back({"measured", fmt::format("{}, kept in {}", all.size(), choices.file())});
  for (const auto& [description, choice] : all) {
    const std::string why =
        choice.seconds.empty() ? "by the rule: the machine was busy" : nn::cpu::describe_times(choice);
    section.rows.push_back({std::string(nn::cpu::name_of(choice.algorithm)), fmt::format("{} ({})", description, why)});
  }
  return section;
}

DoctorReport::Section limits_section(const std::optional<core::MachineLimits>& limits) {
  if (!limits) return {"Limits", {{"not measured", "trainyard doctor --limits measures them, on an idle machine"}}};
  const auto flops = [](double one, double all) {
    return one == 0 ? std::string("no instructions for it (AVX512_BF16)")
                    : fmt::format("{:.1f} GFLOP/s, one thread {:.1f}", 1e-9 * all, 1e-9 * one);
  };
  const std::string busy =
      !limits->measured_on_busy_machine()
          ? std::string()
          : fmt::format("; other programs had a core for {:.0f} % of the time: measure again on an idle machine",
                        100 * (1 - limits->processor_share));
  const auto bytes = [](double rate) { return fmt::format("{:.1f} GB/s", 1e-9 * rate); };
  return {"Limits",
          {{"measured", fmt::format("{}, {} threads{}", utc_day(limits->measured_at), limits->threads, busy)},
           {"multiply-add fp32", flops(limits->fp32_flops_one, limits->fp32_flops_all)},
           {"multiply-add bf16", flops(limits->bf16_flops_one, limits->bf16_flops_all)},
           {"memory read", bytes(limits->read_bytes)},
           {"memory copy", bytes(limits->copy_bytes)},
           {"memory triad", bytes(limits->triad_bytes)}}};
}

DoctorReport examine_machine(const std::vector<AllReduceCheck>& all_reduces) {
  constexpr int kOldestToolkit = 13000;  // cmake/Cuda.cmake asks for 13.0
  const bool toolkit = !core::find_cuda_toolkit(core::cuda_toolkit_folders(), kOldestToolkit).empty();
  return {{machine(), instruction_sets(), limits_section(core::load_machine_limits()),
           convolutions_section(nn::cpu::ConvolutionChoices::instance()),
           all_reduces_section(parallel::AllReduceChoices::instance(), all_reduces), build_section(core::build_info()),
           features_section(core::build_info().optional_parts, toolkit)}};
}

void print_report(const DoctorReport& report, std::ostream& out) {
  size_t width = 0;
  for (const auto& section : report.sections) {
    for (const auto& [name, finding] : section.rows) width = std::max(width, name.size());
  }
  const char* gap = "";
  for (const auto& section : report.sections) {
    fmt::print(out, "{}{}\n", gap, section.title);
    for (const auto& [name, finding] : section.rows) fmt::print(out, "  {:{}}  {}\n", name, width, finding);
    gap = "\n";
  }
}

}  // namespace trainyard::cli
