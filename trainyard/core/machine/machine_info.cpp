#include "trainyard/core/machine/machine_info.h"

#include <sys/resource.h>

#include "trainyard/core/system/host_name.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core {
MachineInfo machine_info() {
  MachineInfo info;
  info.name = host_name();
  info.processor = proc_value(read_system_file("/proc/cpuinfo").value_or(""), "model name");
  if (info.processor.empty()) info.processor = "unknown";
  info.cores = available_cores();
  info.memory_bytes = memory_info_bytes("MemTotal");
  return info;
}

int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

}  // namespace trainyard::core
