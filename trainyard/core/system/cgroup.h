// What the kernel's control groups allow this process. Containers and batch systems limit cores and memory there, and
// the machine's own figures say nothing about it. Version 2 (cpu.max, memory.max) and version 1 (cpu.cfs_quota_us,
// memory.limit_in_bytes) are read.
#pragma once

#include <cstdint>
#include <optional>

#include "trainyard/core/system/system_files.h"

namespace trainyard::core {

struct CgroupLimits {
  std::optional<double> cores;           // quota divided by period; nullopt: no quota
  std::optional<uint64_t> memory_bytes;  // nullopt: no limit
};

// Returns the tightest limits on the way from the process's own groups (/proc/self/cgroup) up to the roots below
// /sys/fs/cgroup. Files that are missing, or say something unknown, limit nothing.
CgroupLimits cgroup_limits(const ReadText& read = read_system_file);

}  // namespace trainyard::core
