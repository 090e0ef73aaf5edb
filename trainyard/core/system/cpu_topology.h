// Which processors (logical CPUs, as the kernel numbers them) there are, and how they lie in cores, packages and NUMA
// nodes. Read from /sys/devices/system; what a system does not say is one package, or one node, of cores with one CPU.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trainyard/core/system/system_files.h"

namespace trainyard::core {

using CpuList = std::vector<int>;  // ascending, each once

// The kernel's form of a list: "0-3,8" is 0, 1, 2, 3, 8. None for anything else; "" is an empty list.
std::optional<CpuList> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const CpuList& cpus);
// A CPU's number in decimal digits alone, below 2^16: no machine has more, and no list should take all memory.
std::optional<int> parse_cpu_number(std::string_view text);

struct CpuPosition {
  int cpu = 0;
  int package = 0, core = 0, thread = 0;  // counted from 0: packages of the machine, cores of one, CPUs of a core
};

// Of these CPUs, in their order. Places are counted among them alone.
std::vector<CpuPosition> cpu_positions(const CpuList& cpus, const ReadText& read = read_system_file);

struct NumaNode {
  int number = 0;
  CpuList cpus;
};

// The nodes that have any of these CPUs, by number, with those of them. All of them in node 0 where the system has no
// nodes.
std::vector<NumaNode> numa_nodes(const CpuList& cpus, const ReadText& read = read_system_file);

// CPUs that the calling thread may use, and all that are online.
CpuList allowed_cpus();
CpuList online_cpus(const ReadText& read = read_system_file);

}  // namespace trainyard::core
