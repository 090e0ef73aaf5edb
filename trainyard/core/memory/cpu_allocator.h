// A caching allocator for LibTorch's CPU tensors. glibc returns freed activations to the system at every step, and the
// page faults of the next allocation cost a third of a training step. This allocator keeps freed memory.
//
// core/memory/block_cache.h describes sizes, alignment and huge pages. Any thread may free. Under AddressSanitizer,
// which must see every block, installing does nothing and says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

struct CpuAllocatorStatistics {
  uint64_t used_bytes = 0;  // in live tensors, rounded up, with the blocks' own headers
  uint64_t held_bytes = 0;  // used plus cached
  uint64_t peak_used_bytes = 0;
  uint64_t peak_held_bytes = 0;
  uint64_t allocations = 0;
  uint64_t cache_hits = 0;
  uint64_t limit_bytes = 0;  // of held_bytes; 0: none
};

// Makes it LibTorch's allocator for the rest of the program (it is never destroyed, since tensors may outlive main).
// Trainyard's programs call it; users of the library decide for themselves. limit_bytes = 0 takes the control group's
// memory limit, less an eighth (at most 512 MiB) for all that are not tensors; without such a limit there is none.
// Another call changes the limit. Returns false when it was not installed. A tensor beyond the limit is a kNoSpace
// error that says what is used, held and free.
bool install_cpu_allocator(uint64_t limit_bytes = 0);
bool cpu_allocator_installed();

using CpuMemory = std::unique_ptr<void, void (*)(void*)>;
// Returns zeros, aligned to 64 bytes, from this allocator or, where it is not installed, from malloc. Unlike at::zeros
// it touches no page that is new: the system provides each page of a large tensor at its first use, on the thread that
// uses it. Throws kNoSpace.
[[nodiscard]] CpuMemory zeroed_cpu_memory(size_t bytes);

CpuAllocatorStatistics cpu_allocator_statistics();

// Releases cached blocks to the system, between phases of a run that need different sizes. Returns the bytes freed.
uint64_t trim_cpu_allocator();

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
