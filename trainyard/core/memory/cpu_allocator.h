// A caching allocator for LibTorch's CPU tensors. glibc gives freed activations back to the system at every step, and
// the page faults that bring them back cost a third of a training step; this one keeps them.
//
// Sizes, alignment and huge pages: core/memory/block_cache.h. Frees may come from any thread. Off (install does nothing and
// says so) under AddressSanitizer, which must see every block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

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

// Makes it LibTorch's allocator for the rest of the program (it is never destroyed: tensors may outlive main). Programs
// call it; library users opt in. limit_bytes = 0 takes the control group's memory limit less an eighth (at most
// 512 MiB) for all that are not tensors, or none. Calling it again sets the limit anew. False when it was not
// installed. A tensor beyond the limit is a kNoSpace error that says what is used, held and free.
bool install_cpu_allocator(uint64_t limit_bytes = 0);
bool cpu_allocator_installed();

using CpuMemory = std::unique_ptr<void, void (*)(void*)>;
// Zeros, aligned to 64 bytes, from this allocator or, where it is not installed, from malloc. Unlike at::zeros it
// touches no page that is new: those of a large tensor come when they are first used, on the threads that use them, or
// never. Throws kNoSpace.
CpuMemory zeroed_cpu_memory(size_t bytes);

CpuAllocatorStatistics cpu_allocator_statistics();
void reset_cpu_allocator_peaks();

// Gives cached blocks back to the system: between phases of a run that need different sizes. Returns bytes freed.
uint64_t trim_cpu_allocator();

}  // namespace trainyard::core
