#include "trainyard/core/system/system_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace trainyard::core {

std::optional<std::string> read_system_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string proc_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(key)) continue;
    std::string_view rest = line.substr(key.size());
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t")));
    if (!rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t")));
    return std::string(rest);
  }
  return {};
}

uint64_t memory_info_bytes(std::string_view key, const ReadText& read) {
  const std::string value = proc_value(read("/proc/meminfo").value_or(""), key);  // "24593408 kB"
  uint64_t kibibytes = 0;
  std::from_chars(value.data(), value.data() + value.size(), kibibytes);
  return kibibytes << 10;
}

std::optional<double> seconds_waited_for_core(const ReadText& read) {
  std::istringstream numbers(read("/proc/thread-self/schedstat").value_or(""));
  uint64_t ran = 0, waited = 0;
  if (!(numbers >> ran >> waited)) return std::nullopt;
  return 1e-9 * static_cast<double>(waited);
}

}  // namespace trainyard::core
