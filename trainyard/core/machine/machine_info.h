// Describes this machine. Benchmark logs and `trainyard doctor` print it.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::core {

struct MachineInfo {
  std::string name;           // host name
  std::string processor;      // "AMD EPYC 9654 96-Core Processor", "unknown" when the system does not say
  int cores = 0;              // cores that this process may use
  uint64_t memory_bytes = 0;  // main memory of the machine; 0 when the system does not say
};

MachineInfo machine_info();

// Returns the most memory that this process has had resident at once so far, in bytes.
[[nodiscard]] int64_t peak_memory_bytes();

}  // namespace trainyard::core
