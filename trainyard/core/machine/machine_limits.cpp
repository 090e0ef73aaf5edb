#include "trainyard/core/machine/machine_limits.h"

#include <charconv>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/core/system/system_files.h"

namespace trainyard::core {
namespace {

// Increase it when a number gets another meaning: older files are then ignored and the limits measured again.
constexpr int kFormat = 1;

std::string path_of(std::string_view directory) {
  return user_cache_file("machine_limits", directory);
}

struct Field {
  const char* name;
  double MachineLimits::*value;
};
constexpr Field kFields[] = {
    {"fp32_flops_one", &MachineLimits::fp32_flops_one}, {"fp32_flops_all", &MachineLimits::fp32_flops_all},
    {"bf16_flops_one", &MachineLimits::bf16_flops_one}, {"bf16_flops_all", &MachineLimits::bf16_flops_all},
    {"read_bytes", &MachineLimits::read_bytes},         {"copy_bytes", &MachineLimits::copy_bytes},
    {"triad_bytes", &MachineLimits::triad_bytes},       {"processor_share", &MachineLimits::processor_share}};

template <typename T>
bool read_number(std::string_view text, std::string_view name, T& value) {
  const std::string digits = proc_value(text, name);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() && value >= 0;
}

}  // namespace

std::string save_machine_limits(const MachineLimits& limits, std::string_view directory, FileSystem& files) {
  std::string path = path_of(directory);
  if (path.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there is no folder to keep the machine's limits in",
                                              .remedy = "set XDG_CACHE_HOME or HOME to an absolute path"});
  }
  std::string text = fmt::format("format: {}\nmachine: {}\nthreads: {}\nmeasured_at: {}\n", kFormat, machine_kind(),
                                 limits.threads, limits.measured_at);
  for (const Field& field : kFields) text += fmt::format("{}: {}\n", field.name, limits.*field.value);
  files.make_directories(parent_path(path));
  files.write_file_atomically(path, text);
  return path;
}

std::optional<MachineLimits> load_machine_limits(std::string_view directory, FileSystem& files) {
  const std::string path = path_of(directory);
  try {
    if (path.empty() || !files.exists(path)) return std::nullopt;
    const std::string text = files.read_file(path);
    MachineLimits limits;
    int format = 0;
    bool whole = read_number(text, "format", format) && format == kFormat &&
                 proc_value(text, "machine") == machine_kind() && read_number(text, "threads", limits.threads) &&
                 read_number(text, "measured_at", limits.measured_at);
    for (const Field& field : kFields) whole = whole && read_number(text, field.name, limits.*field.value);
    if (whole) return limits;
    log::warning("{} cannot be understood; `trainyard doctor --limits` measures anew", path);
  } catch (const Error& error) {
    log::warning("the machine's limits are not known: {}", error.what());
  }
  return std::nullopt;
}

}  // namespace trainyard::core
