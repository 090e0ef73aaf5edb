#include "trainyard/core/machine/user_cache.h"

#include <cstdlib>

#include <fmt/format.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/core/system/cpu_isa.h"

namespace trainyard::core {
namespace {

std::string default_directory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return join_path(cache, "trainyard");
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? join_path(home, ".cache/trainyard") : std::string();
}

}  // namespace

std::string machine_kind() {
  const MachineInfo machine = machine_info();
  return fmt::format("{}; {} cores; avx2 {}, avx512f {}, avx512_bf16 {}", machine.processor, machine.cores,
                     __builtin_cpu_supports("avx2") != 0, cpu_has_avx512(), cpu_has_avx512_bf16());
}

std::string user_cache_file(std::string_view name, std::string_view directory) {
  const std::string folder = directory.empty() ? default_directory() : std::string(directory);
  return folder.empty() ? folder : join_path(folder, fmt::format("{}-{:08x}.txt", name, crc32c(machine_kind())));
}

std::string user_cache_folder(std::string_view name) {
  const std::string folder = default_directory();
  return folder.empty() ? folder : join_path(folder, name);
}

}  // namespace trainyard::core
