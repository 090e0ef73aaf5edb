#include "trainyard/core/machine_info.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include "trainyard/core/thread.h"

namespace trainyard::core {
namespace {

std::string read_proc(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

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

MachineInfo machine_info() {
  MachineInfo info;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) info.name = name.data();
  info.processor = proc_value(read_proc("/proc/cpuinfo"), "model name");
  if (info.processor.empty()) info.processor = "unknown";
  info.cores = available_cores();
  const std::string memory = proc_value(read_proc("/proc/meminfo"), "MemTotal");  // "24593408 kB"
  uint64_t kibibytes = 0;
  std::from_chars(memory.data(), memory.data() + memory.size(), kibibytes);
  info.memory_bytes = kibibytes << 10;
  return info;
}

}  // namespace trainyard::core
