// What machine this is, as benchmark logs and the doctor print it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard::core {

struct MachineInfo {
  std::string name;           // of the host
  std::string processor;      // "AMD EPYC 9654 96-Core Processor", "unknown" when the system does not say
  int cores = 0;              // that this process may use
  uint64_t memory_bytes = 0;  // of the machine, 0 when the system does not say
};

MachineInfo machine_info();

// The value behind "key : value" or "key: value" in the text of a file under /proc, "" when there is none.
std::string proc_value(std::string_view text, std::string_view key);

}  // namespace trainyard::core
