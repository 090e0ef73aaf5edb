// Reads from /sys/devices/system which logical CPUs there are, as the kernel numbers them, and to which cores, packages
// and NUMA nodes they belong. When the system does not say it, all CPUs count as cores of one package and one node.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trainyard/core/system/system_files.h"

namespace trainyard::core {

using CpuList = std::vector<int>;  // ascending, each once

// Reads the kernel's form of a list: "0-3,8" is 0, 1, 2, 3, 8, and "" is an empty list. Returns nothing for anything
// else.
std::optional<CpuList> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const CpuList& cpus);
// Reads a CPU's number: decimal digits alone, below 2^16, because no machine has more and a list must not exhaust
// memory.
std::optional<int> parse_cpu_number(std::string_view text);

struct CpuPosition {
  int cpu = 0;
  int package = 0, core = 0, thread = 0;  // counted from 0: packages of the machine, cores of one, CPUs of a core
};

// Returns the positions of these CPUs, in their order. Packages, cores and threads are numbered among these CPUs alone.
[[nodiscard]] std::vector<CpuPosition> cpu_positions(const CpuList& cpus, const ReadText& read = read_system_file);

struct NumaNode {
  int number = 0;
  CpuList cpus{};
};

// Returns the nodes that have any of these CPUs, by number, each with those of them that it has. Where the system has
// no nodes, all CPUs are in node 0.
[[nodiscard]] std::vector<NumaNode> numa_nodes(const CpuList& cpus, const ReadText& read = read_system_file);

// Returns the CPUs that the calling thread may use.
[[nodiscard]] CpuList allowed_cpus();
// Returns all CPUs that are online.
[[nodiscard]] CpuList online_cpus(const ReadText& read = read_system_file);

}  // namespace trainyard::core
