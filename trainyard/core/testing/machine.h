// A machine's /sys and /proc as a map from paths to texts.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/system/system_files.h"

namespace trainyard::core {

using SystemFiles = std::map<std::string, std::string>;

inline ReadText reading(SystemFiles files) {
  return [files = std::move(files)](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

// CPUs as Linux numbers them on most servers: first one of each core, package by package, then the second ones. Cores
// have numbers with gaps, as real ones do.
inline SystemFiles server(int packages, int cores_each, int threads_each) {
  SystemFiles files;
  const int cores = packages * cores_each;
  for (int cpu = 0; cpu < cores * threads_each; ++cpu) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    files[folder + "physical_package_id"] = fmt::format("{}\n", cpu % cores / cores_each);
    files[folder + "core_id"] = fmt::format("{}\n", 4 * (cpu % cores_each));
  }
  files["/sys/devices/system/cpu/online"] = fmt::format("0-{}\n", cores * threads_each - 1);
  return files;
}

}  // namespace trainyard::core
