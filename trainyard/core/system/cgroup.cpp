#include "trainyard/core/system/cgroup.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

namespace trainyard::core {
namespace {

// Values of 2^62 and more are "unlimited" in version 1, which rounds LONG_MAX to pages.
constexpr uint64_t kUnlimited = uint64_t{1} << 62;

std::optional<uint64_t> number(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

template <typename T>
void tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

void apply_cores(CgroupLimits& limits, std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return;
  tighten(limits.cores, static_cast<double>(*quota) / static_cast<double>(*period));
}

void apply_memory(CgroupLimits& limits, const std::optional<std::string>& text) {
  if (!text) return;
  const auto bytes = number(*text);  // "max" is no number
  if (bytes && *bytes < kUnlimited) tighten(limits.memory_bytes, *bytes);
}

// "/a/b" gives "/a/b", "/a" and "". A container sees the path of the host but not the folders above its own, so the
// root of the mount is tried as well.
std::vector<std::string> with_ancestors(std::string path) {
  std::vector<std::string> paths;
  while (!path.empty() && path != "/") {
    paths.push_back(path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  paths.emplace_back();
  return paths;
}

void apply_version_2(CgroupLimits& limits, const std::string& folder, const ReadText& read) {
  if (const auto text = read(folder + "/cpu.max")) {  // "QUOTA PERIOD", QUOTA may be "max"
    const size_t space = text->find(' ');
    if (space != std::string::npos) {
      apply_cores(limits, number(text->substr(0, space)), number(text->substr(space + 1)));
    }
  }
  apply_memory(limits, read(folder + "/memory.max"));
}

void apply_version_1(CgroupLimits& limits, const std::string& folder, const ReadText& read) {
  const auto quota = read(folder + "/cpu.cfs_quota_us");  // -1 without a quota
  const auto period = read(folder + "/cpu.cfs_period_us");
  if (quota && period) apply_cores(limits, number(*quota), number(*period));
  apply_memory(limits, read(folder + "/memory.limit_in_bytes"));
}

}  // namespace

CgroupLimits cgroup_limits(const ReadText& read) {
  CgroupLimits limits;
  std::istringstream groups(read("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(groups, line);) {  // "ID:CONTROLLERS:PATH", version 2 without controllers
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const std::string& path : with_ancestors(line.substr(second + 1))) {
      if (controllers.empty()) {
        apply_version_2(limits, "/sys/fs/cgroup" + path, read);
        continue;
      }
      std::istringstream names(controllers);
      for (std::string name; std::getline(names, name, ',');) {
        if (name != "cpu" && name != "memory") continue;
        // Mounted under all controllers together ("cpu,cpuacct"), with links for the single ones on most systems.
        apply_version_1(limits, "/sys/fs/cgroup/" + controllers + path, read);
        if (name != controllers) apply_version_1(limits, "/sys/fs/cgroup/" + name + path, read);
      }
    }
  }
  return limits;
}

}  // namespace trainyard::core
